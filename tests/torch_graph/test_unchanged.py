"""Generated code sees that a tensor is another one, lies elsewhere, or has changed, as Python does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from anycann.adapters.torch.graph.compiled_graph import Frozen
from anycann.adapters.torch.graph.unchanged import watch

Change = Callable[[torch.Tensor], object]


def _point_to(tensor: torch.Tensor, other: torch.Tensor) -> None:
    tensor.data = other


def _set(tensor: torch.Tensor, storage: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.set_(storage.untyped_storage())  # type: ignore[call-overload]


CHANGES: dict[str, Change] = {
    "counted": lambda tensor: tensor.add_(1),
    "other memory": lambda tensor: _point_to(tensor, tensor.clone()),
    "another place in its memory": lambda tensor: _point_to(tensor, tensor[1:]),
    "uncounted": lambda tensor: tensor.data.mul_(-3),
    "another storage": lambda tensor: _set(tensor, tensor.clone()),
    "grown": lambda tensor: tensor.resize_(tensor.numel() + 1000),
}


def _frozen(tensors: list[torch.Tensor]) -> Frozen:
    return Frozen(lambda args: [], range(1, len(tensors) + 1), tensors)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.complex64], ids=str)
def test_each_change_is_seen_by_generated_code_and_by_python(change: Change, dtype: torch.dtype) -> None:
    tensors = [torch.arange(1, 12 + at).to(dtype)[1:] for at in range(3)]
    args = [torch.ones(1), *tensors]
    seen = watch((1, 2, 3), tensors)
    assert seen is not None
    frozen = _frozen(tensors)
    frozen.holds = frozen._holds
    assert seen(args) is frozen.holds(args) is True
    change(tensors[1])
    assert seen(args) is frozen.holds(args) is False


def test_another_tensor_in_the_place_of_one_is_seen() -> None:
    tensors = [torch.ones(3), torch.ones(3)]
    seen = watch((0, 1), tensors)
    assert seen is not None
    assert [seen(list(args)) for args in (tensors, tensors[::-1], [tensors[0], tensors[1].clone()])] == [True, False, False]


def test_tensors_without_elements_and_of_inference_mode_are_watched() -> None:
    with torch.inference_mode():
        tensors = [torch.empty(0), torch.ones(5), torch.tensor(3.0)]
    frozen = _frozen(tensors)
    assert frozen.holds([None, *tensors])
    tensors[1].data.zero_()
    assert not frozen.holds([None, *tensors])


def test_answers_are_given_back_as_often_as_they_are_taken() -> None:
    seen = watch((0,), [torch.ones(2)])
    assert seen is not None
    for _ in range(100_000):
        assert not seen([None])


def test_nothing_holds_after_the_weights_were_forgotten() -> None:
    tensors = [torch.ones(2)]
    frozen = _frozen(tensors)
    assert frozen.holds([None, *tensors])
    frozen.forget()
    assert not frozen.holds([None, *tensors])
