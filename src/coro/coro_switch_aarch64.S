/*
 * coro_switch_aarch64.S: leave one stack, go on with another (AAPCS64).
 *
 *   void dur__coro_switch(void **save, void *load)
 *
 * Kept: x19 to x30, the low halves of v8 to v15, and FPCR.  What a suspended stack holds, from its sp upwards:
 *   0 x19 ... 80 x29   88 x30   96 d8 ... 152 d15   160 fpcr   168 unused
 */
#include "coro_switch.h"

#ifdef DUR__SWITCH_AARCH64
        .text
        .globl  dur__coro_switch
        .hidden dur__coro_switch
        .type   dur__coro_switch, %function
        .p2align 4
dur__coro_switch:
        .cfi_startproc
        hint    #34                     /* bti c */
        sub     sp, sp, #176
        .cfi_adjust_cfa_offset 176
        stp     x19, x20, [sp, #0]
        stp     x21, x22, [sp, #16]
        stp     x23, x24, [sp, #32]
        stp     x25, x26, [sp, #48]
        stp     x27, x28, [sp, #64]
        stp     x29, x30, [sp, #80]
        .cfi_rel_offset x19, 0
        .cfi_rel_offset x20, 8
        .cfi_rel_offset x21, 16
        .cfi_rel_offset x22, 24
        .cfi_rel_offset x23, 32
        .cfi_rel_offset x24, 40
        .cfi_rel_offset x25, 48
        .cfi_rel_offset x26, 56
        .cfi_rel_offset x27, 64
        .cfi_rel_offset x28, 72
        .cfi_rel_offset x29, 80
        .cfi_rel_offset x30, 88
        stp     d8, d9, [sp, #96]
        stp     d10, d11, [sp, #112]
        stp     d12, d13, [sp, #128]
        stp     d14, d15, [sp, #144]
        mrs     x2, fpcr
        str     x2, [sp, #160]

        mov     x3, sp
        str     x3, [x0]
        mov     sp, x1

        ldr     x3, [sp, #160]
        cmp     x2, x3
        b.eq    1f                      /* writing FPCR is slow, and it is nearly always the same */
        msr     fpcr, x3
1:      ldp     d8, d9, [sp, #96]
        ldp     d10, d11, [sp, #112]
        ldp     d12, d13, [sp, #128]
        ldp     d14, d15, [sp, #144]
        ldp     x19, x20, [sp, #0]
        ldp     x21, x22, [sp, #16]
        ldp     x23, x24, [sp, #32]
        ldp     x25, x26, [sp, #48]
        ldp     x27, x28, [sp, #64]
        ldp     x29, x30, [sp, #80]
        add     sp, sp, #176
        .cfi_adjust_cfa_offset -176
        .cfi_restore x19
        .cfi_restore x20
        .cfi_restore x21
        .cfi_restore x22
        .cfi_restore x23
        .cfi_restore x24
        .cfi_restore x25
        .cfi_restore x26
        .cfi_restore x27
        .cfi_restore x28
        .cfi_restore x29
        .cfi_restore x30
        ret
        .cfi_endproc
        .size   dur__coro_switch, . - dur__coro_switch

/* The first thing on a new stack: entry is in x20, its argument in x19.  Nobody called it, so unwinding ends here. */
        .type   coro_begin, %function
        .p2align 4
coro_begin:
        .cfi_startproc
        .cfi_undefined x30
        hint    #36                     /* bti j */
        mov     x0, x19
        blr     x20
        brk     #1
        .cfi_endproc
        .size   coro_begin, . - coro_begin

/*
 *   void *dur__coro_prepare(void *low, void *top, void (*entry)(void *), void *arg)
 *
 * A stack as if it had been left in coro_begin, with the control word of whoever prepares it.
 */
        .globl  dur__coro_prepare
        .hidden dur__coro_prepare
        .type   dur__coro_prepare, %function
        .p2align 4
dur__coro_prepare:
        .cfi_startproc
        hint    #34                     /* bti c */
        sub     x0, x1, #192
        stp     x3, x2, [x0, #0]        /* x19, x20 */
        stp     xzr, xzr, [x0, #16]
        stp     xzr, xzr, [x0, #32]
        stp     xzr, xzr, [x0, #48]
        stp     xzr, xzr, [x0, #64]
        adr     x4, coro_begin
        stp     xzr, x4, [x0, #80]      /* x29 0: the end for those who follow frame pointers */
        stp     xzr, xzr, [x0, #96]
        stp     xzr, xzr, [x0, #112]
        stp     xzr, xzr, [x0, #128]
        stp     xzr, xzr, [x0, #144]
        mrs     x4, fpcr
        stp     x4, xzr, [x0, #160]
        stp     xzr, xzr, [x0, #176]
        ret
        .cfi_endproc
        .size   dur__coro_prepare, . - dur__coro_prepare

        .section .note.gnu.property, "a"
        .p2align 3
        .long   4                       /* size of the name, of the value, NT_GNU_PROPERTY_TYPE_0 */
        .long   16
        .long   5
        .asciz  "GNU"
        .long   0xc0000000              /* GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI */
        .long   4
        .long   1
        .long   0
#endif

#if defined(__linux__) && defined(__ELF__)
        .section .note.GNU-stack, "", %progbits
#endif
