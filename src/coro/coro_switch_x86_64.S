/*
 * coro_switch_x86_64.S: leave one stack, go on with another (System V ABI).
 *
 *   void dur__coro_switch(void **save, void *load)
 *
 * Kept: the callee-saved registers, and the control words of SSE and x87, which the ABI makes callee-saved too.  What a
 * suspended stack holds, from its sp upwards:
 *   0 mxcsr   4 x87 control word   8 r15   16 r14   24 r13   32 r12   40 rbx   48 rbp   56 return address
 * Both stacks have that shape at the moment of the exchange, so one CFI description holds before and after it and
 * debuggers unwind into whichever is current.
 *
 * The way back is a jump, not a ret: the processor predicts returns by a stack of calls, which this function belies
 * (32 ns for a resume and a yield, 45 with ret).  It is notrack, because the place behind a call has no endbr64.  The
 * object declares IBT but not shadow stacks, which a switch of only one of the two stacks would break; so the linker
 * leaves them off for the whole program.
 */
#include "coro_switch.h"

#ifdef DUR__SWITCH_X86_64
        .text
        .globl  dur__coro_switch
        .hidden dur__coro_switch
        .type   dur__coro_switch, @function
        .p2align 4
dur__coro_switch:
        .cfi_startproc
        endbr64
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbp, 0
        pushq   %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbx, 0
        pushq   %r12
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r12, 0
        pushq   %r13
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r13, 0
        pushq   %r14
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r14, 0
        pushq   %r15
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r15, 0
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        stmxcsr (%rsp)
        fnstcw  4(%rsp)

        movq    %rsp, (%rdi)
        movq    %rsi, %rsp

        ldmxcsr (%rsp)
        fldcw   4(%rsp)
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %r15
        .cfi_adjust_cfa_offset -8
        .cfi_restore r15
        popq    %r14
        .cfi_adjust_cfa_offset -8
        .cfi_restore r14
        popq    %r13
        .cfi_adjust_cfa_offset -8
        .cfi_restore r13
        popq    %r12
        .cfi_adjust_cfa_offset -8
        .cfi_restore r12
        popq    %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbx
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbp
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        .cfi_register rip, rdx
        notrack jmp *%rdx
        .cfi_endproc
        .size   dur__coro_switch, . - dur__coro_switch

/* The first thing on a new stack: entry is in r13, its argument in r12.  Nobody called it, so unwinding ends here. */
        .type   coro_begin, @function
        .p2align 4
coro_begin:
        .cfi_startproc
        .cfi_undefined rip
        endbr64
        movq    %r12, %rdi
        callq   *%r13
        ud2
        .cfi_endproc
        .size   coro_begin, . - coro_begin

/*
 *   void *dur__coro_prepare(void *low, void *top, void (*entry)(void *), void *arg)
 *
 * A stack as if it had been left in coro_begin, with the control words of whoever prepares it.
 */
        .globl  dur__coro_prepare
        .hidden dur__coro_prepare
        .type   dur__coro_prepare, @function
        .p2align 4
dur__coro_prepare:
        .cfi_startproc
        endbr64
        leaq    -80(%rsi), %rax         /* 64 bytes of frame; above it sp is aligned to 16 in coro_begin */
        stmxcsr (%rax)
        movl    $0, 4(%rax)
        fnstcw  4(%rax)
        movq    $0, 8(%rax)
        movq    $0, 16(%rax)
        movq    %rdx, 24(%rax)
        movq    %rcx, 32(%rax)
        movq    $0, 40(%rax)
        movq    $0, 48(%rax)            /* rbp 0: the end for those who follow frame pointers */
        leaq    coro_begin(%rip), %rdx
        movq    %rdx, 56(%rax)
        movq    $0, 64(%rax)
        movq    $0, 72(%rax)
        ret
        .cfi_endproc
        .size   dur__coro_prepare, . - dur__coro_prepare

        .section .note.gnu.property, "a"
        .p2align 3
        .long   4                       /* size of the name, of the value, NT_GNU_PROPERTY_TYPE_0 */
        .long   16
        .long   5
        .asciz  "GNU"
        .long   0xc0000002              /* GNU_PROPERTY_X86_FEATURE_1_AND: IBT */
        .long   4
        .long   1
        .long   0
#endif

#if defined(__linux__) && defined(__ELF__)
        .section .note.GNU-stack, "", %progbits
#endif
