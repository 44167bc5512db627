"""What object code is, for those that keep and load it without LLVM: the recipe it is made by, and the library functions it may call."""

from __future__ import annotations

# Names everything that changes machine code beside the IR and the target; part of every key of the kernel cache. The large code model:
# code and its constants may lie anywhere in memory.
PIPELINE = "speed2,long-by-function,no-unroll,no-vectorize,static,large,2"
# What LLVM may call on its own account. The loader finds each of them in libc, libm or libgcc.
LIBRARY = frozenset(
    {"memcpy", "memmove", "memset", "memcmp", "bcmp"}  # copies and fills it recognises
    | {"fmod", "fmodf", "fma", "fmaf"}  # frem; fma on a processor without it
    | {"__extendhfsf2", "__truncsfhf2", "__truncdfhf2"}  # half on a processor without conversions
    | {"syscall", "clock_gettime", "sched_getcpu"}  # the dispatcher's own
)
# What code calls that catches exceptions of C++. Only such code may need it, so the loader does not look for it.
EXCEPTIONS = frozenset({"__gxx_personality_v0", "__cxa_begin_catch", "__cxa_end_catch"})
