"""Every operator of torch's own test database computes on the npu what it computes on the cpu, forward and backward.

An entry is one operator with its samples in float32, or in another type if it has no float32. Entries that cannot agree are listed with
the reason; one that starts to agree fails the run, so that the list stays true. `scripts/test --large` takes all samples, otherwise some
are taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
import itertools
from typing import Any
from unittest.mock import patch
import warnings

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

pytest.importorskip("expecttest", reason="torch's database of operators needs it: pip install -e '.[test]'")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo import core

DTYPES = (torch.float32, torch.int64, torch.complex64, torch.float8_e4m3fn)
SAMPLES, ALL_SAMPLES = 2, 64
EXCLUDED: dict[str, str] = {}  # name -> why it does not agree
ON_THE_HOST = ("tensor_split",)  # torch wants their tensor arguments on the cpu, whatever their input is on
# What these compute is drawn from a generator, or not defined: only device, type and shape are compared.
RANDOM = ("rand", "bernoulli", "multinomial", "normal", "dropout", "rrelu", "empty", "uniform", "exponential", "geometric", "cauchy",
          "fractional_max_pool", "pca_lowrank", "svd_lowrank")  # fmt: skip


class Difference(Exception):
    """The npu and the cpu do not agree."""


def name_of(op: Any) -> str:
    """`nn.functional.gelu` is `gelu`, its variants follow after a slash."""
    short = op.name.split(".")[-1]
    return f"{short}/{op.variant_test_name}" if op.variant_test_name else short


def dtype_of(op: Any) -> Any:
    """float32, else the first of the others that the operator has, else None."""
    return next((dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu")), None)


def check(op: Any, most: int) -> int:
    """Compare `most` samples; answers how many cpu and npu could compute. Raises Difference, or what the npu raises."""
    dtype = dtype_of(op)
    differentiable = dtype.is_floating_point and op.supports_autograd
    compared = 0
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=differentiable), most):
        given = (sample.input, sample.args, sample.kwargs)
        if not any(isinstance(leaf, (torch.Tensor, torch.device)) for leaf in tree_leaves(tree_map(on_npu, given))):
            continue  # a factory that is told no device
        try:
            expected = computed(op, given)
        except Exception:  # the sample is not for the cpu
            continue
        compare(op, given, expected, differentiable)
        compared += 1
    return compared


def computed(op: Any, given: Any) -> Any:
    """The operator's result; random numbers begin with the same seed."""
    torch.manual_seed(0)
    return op(given[0], *given[1], **given[2])


def compare(op: Any, given: Any, expected: Any, differentiable: bool) -> None:
    """Compute on the npu and compare values and gradients with the cpu's."""
    there = tree_map(on_npu, given[0] if op.name in ON_THE_HOST else given)
    there = (there, *given[1:]) if op.name in ON_THE_HOST else there
    got, wanted = tensors(computed(op, there)), tensors(expected)
    if any(tensor.device.type != "npu" for tensor in got) or len(got) != len(wanted):
        raise Difference(f"results on {[str(tensor.device) for tensor in got]}")
    random = any(word in op.name for word in RANDOM)
    for mine, theirs in zip(got, wanted, strict=True):
        agree(mine, theirs, "result", random)
    if differentiable and any(tensor.requires_grad for tensor in wanted):
        pairs = zip(gradients(got, there), gradients(wanted, given), strict=True)
        for mine, theirs in pairs:
            if (mine is None) != (theirs is None):
                raise Difference("one has a gradient, the other has none")
            if mine is not None:
                agree(mine, theirs, "gradient", random)


def agree(mine: torch.Tensor, theirs: torch.Tensor, what: str, random: bool) -> None:
    """Raise Difference unless the two have the same type, shape and (unless random) values."""
    if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
        raise Difference(f"{what} {mine.dtype} {tuple(mine.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}")
    here, there = comparable(mine), comparable(theirs)
    if not random and not torch.allclose(here, there, rtol=1e-4, atol=1e-5, equal_nan=True):
        raise Difference(f"{what} differs")


def comparable(tensor: torch.Tensor) -> torch.Tensor:
    """The values of any tensor as a dense one on the cpu that allclose takes."""
    tensor = tensor.detach().cpu()
    tensor = tensor.to_dense() if tensor.layout != torch.strided else tensor.resolve_conj()
    return tensor.float() if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point else tensor


def gradients(results: list[torch.Tensor], given: Any) -> Any:
    """Of the sum of all results, by every argument that wants one."""
    total = sum((tensor.abs() if tensor.is_complex() else tensor).sum() for tensor in results if tensor.requires_grad)
    return torch.autograd.grad(total, [tensor for tensor in tensors(given) if tensor.requires_grad], allow_unused=True)


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def on_npu(value: Any) -> Any:
    """An argument of the cpu as one of the npu."""
    if isinstance(value, torch.Tensor):
        return moved(value.detach()).requires_grad_(value.requires_grad)
    if isinstance(value, torch.device) or value == "cpu":
        return torch.device("npu:0")
    return value


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the npu, with the memory around a tensor that is part of more."""
    if tensor.layout != torch.strided or tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size():
        return tensor.npu()
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).npu()
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def outcomes(most: int) -> Iterator[tuple[str, str]]:
    """Every entry and what became of it: agrees, no sample, or why not."""
    for op in op_db:
        if dtype_of(op) is None:
            yield name_of(op), "no sample"
            continue
        try:
            yield name_of(op), "agrees" if check(op, most) else "no sample"
        except Exception as error:
            yield name_of(op), f"{type(error).__name__}: {str(error)[:200]}"


def run(most: int) -> Counter[str]:
    """Check all entries, and that those which do not agree are those of the list; prints and answers the counts.

    For each sample torch looks at the stack and its source files for a test of unittest. There is none; finding that took most of the time.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # thousands of small operators
    with patch.object(common_utils, "extract_test_fn", lambda: None), patch.object(core, "extract_test_fn", lambda: None):
        found = list(outcomes(most))
    torch.set_num_threads(threads)
    wrong = {name: why for name, why in found if why not in ("agrees", "no sample")}
    surprises = {name: why for name, why in wrong.items() if name not in EXCLUDED}
    agreeing = sorted(name for name, why in found if why == "agrees" and name in EXCLUDED)
    counts = Counter("differs" if name in wrong else why for name, why in found)
    print(f"\n{len(found)} entries: {dict(counts)}")
    assert surprises == {}
    assert agreeing == [], "these agree now: take them off the list"
    return counts


@pytest.mark.filterwarnings("ignore")
def test_operators_agree_with_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        counts = run(SAMPLES)
    assert counts["agrees"] >= 693


@pytest.mark.large
@pytest.mark.filterwarnings("ignore")
def test_operators_agree_with_the_cpu_on_all_samples(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        counts = run(ALL_SAMPLES)
    assert counts["agrees"] >= 693
