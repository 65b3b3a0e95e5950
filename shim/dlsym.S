// SPDX-License-Identifier: MIT
// The exported dlsym. glibc decides RTLD_NEXT and RTLD_DEFAULT by the return address it finds, so every name that is not
// ours ends in a jump to the real dlsym with stack and arguments as the caller left them. For a name of ours
// sdcguard_dlsym() has the answer. Uses no thread-local storage: a sanitizer's start-up calls it before any constructor.
//
//   struct { void* jump; void* value; } sdcguard_dlsym(void* handle, const char* name, const void* return_address)
//   jump != 0: continue there. jump == 0: return value.

  .text
  .globl dlsym
  .type dlsym, %function
#if defined(__x86_64__)
  .balign 16
dlsym:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movq 24(%rsp), %rdx
  call sdcguard_dlsym
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %rax, %rax
  je 1f
  jmp *%rax
1:
  movq %rdx, %rax
  ret
  .cfi_endproc
#elif defined(__aarch64__)
  .balign 16
dlsym:
  .cfi_startproc
  hint #34
  stp x0, x1, [sp, #-32]!
  .cfi_adjust_cfa_offset 32
  str x30, [sp, #16]
  .cfi_offset x30, -16
  mov x2, x30
  bl sdcguard_dlsym
  mov x16, x0
  mov x17, x1
  ldp x0, x1, [sp]
  ldr x30, [sp, #16]
  add sp, sp, #32
  .cfi_adjust_cfa_offset -32
  .cfi_restore x30
  cbz x16, 1f
  br x16
1:
  mov x0, x17
  ret
  .cfi_endproc
#else
#error "dlsym.S: no tail jump for this architecture"
#endif
  .size dlsym, . - dlsym
  .section .note.GNU-stack, "", %progbits
