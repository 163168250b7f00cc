/*
 * coro_switch.h: which way to switch stacks this build uses.  Included by C and assembler.
 */
#ifndef DURITE_CORO_SWITCH_H
#define DURITE_CORO_SWITCH_H

#if defined(DURITE_CORO_UCONTEXT)
#define DUR__SWITCH_UCONTEXT 1
#elif defined(__x86_64__) && defined(__LP64__)
#define DUR__SWITCH_X86_64 1
#elif defined(__aarch64__) && defined(__LP64__)
#define DUR__SWITCH_AARCH64 1
#elif defined(__arm__) && defined(__ARM_EABI__) && defined(__ARM_PCS_VFP)
#define DUR__SWITCH_ARM 1
#else
#define DUR__SWITCH_UCONTEXT 1
#endif

#endif
