"""Draws of zeros and ones by generated code are torch's, and leave the generator where torch leaves it."""

from __future__ import annotations

import sys
import threading

import pytest
import torch

from anycann.adapters.torch.device import bernoulli


def _both(count: int, p: float, before: int, seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What each draws, and its generator's state; `before`: numbers that are taken first."""
    found = []
    for ours in (True, False):
        generator = torch.Generator("cpu").manual_seed(seed)
        torch.empty(before, dtype=torch.int32).random_(generator=generator)
        out = torch.full((count,), True)
        if ours:
            code = bernoulli._code()
            assert code is not None, "this torch draws in another way, or code does not run here"
            bernoulli._draw(code, generator, p, out)
        else:
            out.bernoulli_(p, generator=generator)
        found.append((out, generator.get_state()))
    return found


@pytest.mark.parametrize("before", [0, 1, 2, 307, 622, 623, 624, 625])
@pytest.mark.parametrize("count", [1, 7, 8, 311, 312, 313, 1000, 4099])
def test_draws_and_state_are_torchs(count: int, before: int) -> None:
    p = (0.5, 0.9, 0.1, 1 / 3)[(count + before) % 4]
    (got, state), (wanted, its_state) = _both(count, p, before, seed=count * 1000 + before)
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    assert torch.equal(state, its_state)


@pytest.mark.parametrize("p", [0.0, 1e-12, 2**-53, 0.5 + 2**-53, 1 - 2**-53, 1.0])
def test_probabilities_at_the_ends(p: float) -> None:
    (got, state), (wanted, its_state) = _both(5000, p, before=3, seed=17)
    assert torch.equal(got, wanted)
    assert torch.equal(state, its_state)


def test_tensors_without_gaps_in_any_order_are_filled_as_torch_fills_them() -> None:
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        results = []
        for fill in (lambda g, t: bernoulli.draw(g, 0.7, t), lambda g, t: t.bernoulli_(0.7, generator=g)):
            tensor = torch.zeros(31, 17, 13, dtype=torch.bool).permute(order)
            results.append(fill(torch.Generator("cpu").manual_seed(5), tensor).clone())
        assert torch.equal(*results)


def test_threads_that_share_a_generator_draw_other_numbers() -> None:
    generator, drawn, interval = torch.Generator("cpu").manual_seed(1), [], sys.getswitchinterval()

    def work() -> None:
        for _ in range(50):
            drawn.append(bernoulli.draw(generator, 0.5, torch.empty(3000, dtype=torch.bool)).numpy().tobytes())

    threads = [threading.Thread(target=work) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(set(drawn)) == 4 * 50


def test_dropout_of_the_npu_is_that_of_its_seed() -> None:
    values = []
    for _ in range(2):
        torch.npu.manual_seed(3)  # type: ignore[attr-defined]
        values.append(torch.nn.functional.dropout(torch.ones(200, 50, device="npu"), 0.3).cpu())
    assert torch.equal(*values)
    torch.manual_seed(3)
    kept = torch.empty(200, 50, dtype=torch.bool).bernoulli_(0.7)
    torch.testing.assert_close(values[0], kept / 0.7)
