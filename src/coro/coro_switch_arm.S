/*
 * coro_switch_arm.S: leave one stack, go on with another (AAPCS32 with hardware floating point, ARM state).
 *
 *   void dur__coro_switch(void **save, void *load)
 *
 * Kept: r4 to r11, d8 to d15, and FPSCR.  What a suspended stack holds, from its sp upwards:
 *   0 fpscr   4 d8 ... 60 d15   68 r4 ... 96 r11   100 where to go on
 * Exceptions are unwound by the tables of .fnstart and .save here, and not by the CFI, which is for debuggers.
 */
#include "coro_switch.h"

#ifdef DUR__SWITCH_ARM
        .syntax unified
        .arm
        .fpu    vfpv3-d16
        .cfi_sections .debug_frame
        .text
        .globl  dur__coro_switch
        .hidden dur__coro_switch
        .type   dur__coro_switch, %function
        .p2align 4
dur__coro_switch:
        .fnstart
        .cfi_startproc
        push    {r4-r11, lr}
        .save   {r4-r11, lr}
        .cfi_adjust_cfa_offset 36
        .cfi_rel_offset r4, 0
        .cfi_rel_offset r5, 4
        .cfi_rel_offset r6, 8
        .cfi_rel_offset r7, 12
        .cfi_rel_offset r8, 16
        .cfi_rel_offset r9, 20
        .cfi_rel_offset r10, 24
        .cfi_rel_offset r11, 28
        .cfi_rel_offset lr, 32
        vpush   {d8-d15}
        .vsave  {d8-d15}
        .cfi_adjust_cfa_offset 64
        vmrs    r2, fpscr
        push    {r2}
        .pad    #4
        .cfi_adjust_cfa_offset 4

        str     sp, [r0]
        mov     sp, r1

        pop     {r3}
        .cfi_adjust_cfa_offset -4
        cmp     r2, r3
        vmsrne  fpscr, r3               /* slow, and it is nearly always the same */
        vpop    {d8-d15}
        .cfi_adjust_cfa_offset -64
        pop     {r4-r11, pc}
        .cfi_endproc
        .fnend
        .size   dur__coro_switch, . - dur__coro_switch

/* The first thing on a new stack: entry is in r5, its argument in r4.  Nobody called it, so unwinding ends here. */
        .type   coro_begin, %function
        .p2align 4
coro_begin:
        .fnstart
        .cantunwind
        .cfi_startproc
        .cfi_undefined lr
        mov     r0, r4
        blx     r5
        udf     #0
        .cfi_endproc
        .fnend
        .size   coro_begin, . - coro_begin

/*
 *   void *dur__coro_prepare(void *low, void *top, void (*entry)(void *), void *arg)
 *
 * A stack as if it had been left in coro_begin, with the control word of whoever prepares it.  Of the 104 bytes nothing is
 * left when coro_begin runs, and sp is 16 below the top: aligned to 8, as the procedure call standard wants it.
 */
        .globl  dur__coro_prepare
        .hidden dur__coro_prepare
        .type   dur__coro_prepare, %function
        .p2align 4
dur__coro_prepare:
        .fnstart
        .cfi_startproc
        sub     r0, r1, #120
        mov     ip, #0
1:      str     ip, [r1, #-4]!          /* r11 among them: 0 is the end for those who follow frame pointers */
        cmp     r1, r0
        bne     1b
        vmrs    ip, fpscr
        str     ip, [r0, #0]
        str     r3, [r0, #68]           /* r4 */
        str     r2, [r0, #72]           /* r5 */
        adr     ip, coro_begin
        str     ip, [r0, #100]
        bx      lr
        .cfi_endproc
        .fnend
        .size   dur__coro_prepare, . - dur__coro_prepare
#endif

#if defined(__linux__) && defined(__ELF__)
        .section .note.GNU-stack, "", %progbits
#endif
