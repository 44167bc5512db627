"""How fast a processor multiplies, adds and loads: what the estimates of kernels count in."""

from __future__ import annotations

from anycann.codegen.kernels.dot_products import DotProducts
from anycann.codegen.kernels.dot_tiles import has_tiles
from anycann.target.target import Target
from anycann.te import dtypes

# 512-bit processors that do one such FMA a cycle, in two halves or for want of the second unit that servers have.
_ONE_WIDE_UNIT = frozenset({"znver4", "cannonlake", "icelake-client", "tigerlake", "rocketlake"})


def has_fma(target: Target) -> bool:
    """True if the processor multiplies and adds in one instruction."""
    return not target.is_x86 or target.has("fma")


def fills_registers(target: Target) -> bool:
    """True if the sums of a tile and what they are made of take all registers: 16 have no room for loads that LLVM would move ahead."""
    return target.has_few_registers and has_fma(target)


def is_halved(target: Target) -> bool:
    """True if the processor takes 512-bit vectors through units of half the width.

    LLVM takes newer servers it does not know for a client; no client has bfloat16 instructions beside 512-bit vectors.
    """
    return target.lanes == 16 and target.cpu in _ONE_WIDE_UNIT and (target.cpu == "znver4" or not target.has("avx512bf16"))


_INTEL = ("lake", "lake-client", "lake-server", "rapids", "rapids-d")


def gains_by_pairs(target: Target) -> bool:
    """True if dot products of two bfloat16 (AVX512-BF16) are faster than as many multiplications and additions of float32.

    A core of EPYC (Zen 4) does 225 GFLOP/s by them and 117 without, one of a Xeon 121 and 241: that has matrix tiles for it.
    """
    return target.has("avx512bf16") and not target.cpu.endswith(_INTEL)


def multiplies_bfloat(target: Target) -> bool:
    """True if the processor has instructions for products of bfloat16 that are faster than those of float32."""
    pairs = DotProducts(dtypes.bfloat16, target).is_one_instruction and gains_by_pairs(target)
    return pairs or has_tiles(target, dtypes.bfloat16)


def fma_rate(target: Target) -> float:
    """Multiplications with addition of whole vectors in a cycle; of a multiplication and an addition where they are two instructions."""
    if not has_fma(target):
        return 1.0
    return 1.0 if is_halved(target) else 2.0
