/*
 * cxx.h: what the C++ runtime keeps per thread about exceptions, kept per coroutine instead.
 *
 * The exceptions that are being handled (inside catch blocks) and the number of those in flight belong to a thread.  A
 * handler that waits inside a catch block leaves the thread to others, who catch exceptions of their own; without this
 * it would find theirs when it goes on.  The C++ ABI names the place (__cxa_get_globals) and its layout.
 */
#ifndef DURITE_CORO_CXX_H
#define DURITE_CORO_CXX_H

/* __cxa_eh_globals of the Itanium C++ ABI. */
typedef struct dur__cxx {
    void *caught; /* a stack, the innermost first */
    unsigned int uncaught;
#ifdef __ARM_EABI_UNWINDER__
    void *propagating;
#endif
} dur__cxx;

/* Look for a C++ runtime in this process.  There is none in most: everything else does nothing then. */
void dur__cxx_find(void);
/* Exchange what this thread has for what is kept here. */
void dur__cxx_swap(dur__cxx *kept);
/* Nobody will come back to these catch blocks: end them, which destroys the exceptions. */
void dur__cxx_drop(dur__cxx *kept);

#endif
