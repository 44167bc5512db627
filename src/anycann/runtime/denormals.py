"""LLVM IR that sets and restores how the processor treats denormal numbers.

Kernels take them for zero: some processors need a hundred cycles for each, and none carries a digit that matters.
"""

from __future__ import annotations

from anycann.target.target import Target


def denormals_ir(target: Target) -> str:
    """`i64 @flush_denormals()`, which gives the mode that was set before, and `void @restore_denormals(i64 mode)`."""
    return _X86 if target.is_x86 else _ARM


_X86 = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define internal i64 @flush_denormals() alwaysinline {
  %word = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  %old = load i32, ptr %word
  %new = or i32 %old, 32832
  store i32 %new, ptr %word
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  %mode = zext i32 %old to i64
  ret i64 %mode
}

define internal void @restore_denormals(i64 %mode) alwaysinline {
  %word = alloca i32
  %old = trunc i64 %mode to i32
  store i32 %old, ptr %word
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  ret void
}
"""

_ARM = """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal i64 @flush_denormals() alwaysinline {
  %mode = call i64 @llvm.aarch64.get.fpcr()
  %new = or i64 %mode, 16777216
  call void @llvm.aarch64.set.fpcr(i64 %new)
  ret i64 %mode
}

define internal void @restore_denormals(i64 %mode) alwaysinline {
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void
}
"""
