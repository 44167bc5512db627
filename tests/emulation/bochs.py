"""The emulator: Bochs as the package `bochscpu-python` has it, made a Sapphire Rapids, and some of its instructions mended.

What is overwritten here belongs to one version of the package and is compared before. `test_emulation.py` has a test for each.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import os
import struct
import sys
from types import ModuleType

_PAGE = 1 << 12
_DEFAULT_MODEL, _MODEL = "_Z23create_corei3_cnl_cpuidP8BX_CPU_C", "_Z28create_sapphire_rapids_cpuidP8BX_CPU_C"
_CONVERT = "_ZN8BX_CPU_C30VCVTNE2PS2BF16_MASK_VphHpsWpsREP15bxInstruction_c"
_DOT_BFLOAT16 = "_ZN8BX_CPU_C25VDPBF16PS_MASK_VpsHdqWdqREP15bxInstruction_c"
_DOT_BYTES = "_ZN8BX_CPU_C31HANDLE_AVX512_3OP_DWORD_EL_MASKIXadL_Z11xmm_pdpbusdP12bx_xmm_reg_tPKS1_S4_EEEEvP15bxInstruction_c"
_ASSIGN_SOURCES = "_Z11assign_srcsP15bxInstruction_cjbjjjjbb"
_TABLE, _BEHIND_TABLE = "BxOpcodesTable", "BxOpcodeTable0F38"


def load_bochs() -> ModuleType:
    """The package. Its binary names a function of a newer C library than some systems have, but never calls it."""
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_LAZY)
    try:
        import bochscpu.cpu
        import bochscpu.memory
    finally:
        sys.setdlopenflags(flags)
    library = ctypes.CDLL(bochscpu._bochscpu.__file__)
    _choose_model(library)
    _mend_displacement(library)
    _mend_conversion(library)
    _mend_indices(library)
    _end_quietly()
    return bochscpu


def _choose_model(library: ctypes.CDLL) -> None:
    """The package always makes a Cannon Lake: what makes it now begins with `mov rax, ...; jmp rax`."""
    jump = b"\x48\xb8" + struct.pack("<Q", _address_of(library, _MODEL)) + b"\xff\xe0"
    _overwrite(_address_of(library, _DEFAULT_MODEL), jump)


def _mend_displacement(library: ctypes.CDLL) -> None:
    """The decoder scales the short displacement of VDPBF16PS by too little: its operands become of the kinds that VPDPBUSD's are."""
    table, row = _address_of(library, _TABLE), struct.Struct("<QQ4sI")  # what loads, what computes, operands, flags
    found = {}
    for at in range(table, _address_of(library, _BEHIND_TABLE) - row.size + 1, row.size):
        _, computes, operands, _ = row.unpack(ctypes.string_at(at, row.size))
        found.setdefault(computes, (at + 16, operands))
    place, wrong = found[_address_of(library, _DOT_BFLOAT16)]
    _, right = found[_address_of(library, _DOT_BYTES)]
    assert (wrong[:2], wrong[3]) == (right[:2], right[3])
    _overwrite(place, right)


def _mend_conversion(library: ctypes.CDLL) -> None:
    """VCVTNE2PS2BF16 of 512 bits reads its first operand 64 bytes too far, which is its second one: `lea r15, [rsp + 16]` less 64."""
    place, lea = _address_of(library, _CONVERT) + 0x120, b"\x4c\x8d\x7c\x24"
    assert ctypes.string_at(place, 5) == lea + b"\x10"
    _overwrite(place, lea + b"\xd0")


def _mend_indices(library: ctypes.CDLL) -> None:
    """Gathers and scatters by a register above the fifteenth are refused: its number's highest bit lies in EVEX.vvvv, of which they use
    no other. `mov eax, 3; test r15d, r15d; jne` becomes `push 3; pop rax; test r15b, 15; nop; jne`.
    """
    place, wrong = _address_of(library, _ASSIGN_SOURCES) + 0x119, bytes.fromhex("b803000000 4585ff 7502")
    assert ctypes.string_at(place, len(wrong)) == wrong
    _overwrite(place, bytes.fromhex("6a03 58 41f6c70f 90 7502"))


def _address_of(library: ctypes.CDLL, name: str) -> int:
    return ctypes.addressof(ctypes.c_char.in_dll(library, name))


def _overwrite(address: int, content: bytes) -> None:
    begin, end = address & -_PAGE, address + len(content)
    everything = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), everything) == 0
    ctypes.memmove(address, content, len(content))


def _end_quietly() -> None:
    """At the end of the process the package lists what it leaks, and its destructors call Python, which is gone: they do not run."""
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
    system = ctypes.CDLL(None)
    system.on_exit(system._exit, None)
