"""A captured graph runs its operators again on the same memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch_npu


def test_a_replay_reads_the_inputs_and_writes_the_outputs_of_the_capture() -> None:
    x, graph = torch.ones(4, device="npu"), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x * 2
        z = y.view(2, 2).t() + 1
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [10.0] * 4
    assert z.flatten().tolist() == [11.0] * 4


def test_a_whole_training_step_is_captured() -> None:
    module = torch.nn.Linear(3, 2).npu()
    twin = torch.nn.Linear(3, 2)
    twin.load_state_dict(module.state_dict())
    optimizer, twin_optimizer = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (module, twin))
    static, target = torch.zeros(5, 3, device="npu"), torch.zeros(5, 2, device="npu")

    def step(model: torch.nn.Module, by: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        by.zero_grad(set_to_none=False)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        by.step()
        return loss.detach()

    module(static).sum().backward()  # gradients exist before the capture
    saved = {name: value.clone() for name, value in module.state_dict().items()}
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        loss = step(module, optimizer, static, target)
    module.load_state_dict(saved)
    for _ in range(3):
        x, y = torch.randn(5, 3), torch.randn(5, 2)
        static.copy_(x)
        target.copy_(y)
        graph.replay()
        expected = step(twin, twin_optimizer, x, y)
        torch.testing.assert_close(loss.cpu(), expected)
    torch.testing.assert_close(module.weight.cpu(), twin.weight)


def test_what_cannot_be_captured_is_refused() -> None:
    graph = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError, match="before a successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="asked for while a graph captures"), torch.npu.graph(graph):
        torch.ones(1, device="npu").item()
    assert not torch.npu.is_current_stream_capturing()


def test_a_group_of_operators_takes_new_arguments() -> None:
    x, graph, stream = torch.ones(3, device="npu"), torch.npu.NPUGraph(), torch.npu.Stream()
    with torch.npu.graph(graph, stream=stream):
        torch.npu.graph_task_group_begin(stream)
        y = torch.mul(x, 2)
        group = torch.npu.graph_task_group_end(stream)
        z = y + 1
    torch.npu.graph_task_update_begin(stream, group)
    torch.mul(x, 10)
    torch.npu.graph_task_update_end(stream)
    graph.replay()
    assert z.tolist() == [11.0] * 3
    torch.npu.graph_task_update_begin(stream, group)
    with pytest.raises(RuntimeError, match="cannot be updated"):
        torch.npu.graph_task_update_end(stream)


def test_graphed_callables_compute_what_they_did() -> None:
    module = torch.nn.BatchNorm1d(3).npu()
    x = torch.randn(4, 3, device="npu", requires_grad=True)
    before = module.running_mean.clone()
    (graphed,) = torch.npu.make_graphed_callables((module,), ((x,),))
    assert torch.equal(module.running_mean, before)
    graphed(x).sum().backward()
    assert x.grad.shape == x.shape


def test_a_replay_draws_what_the_program_would_and_the_capture_draws_nothing() -> None:
    own = torch.Generator("npu").manual_seed(3)

    def draw() -> list[torch.Tensor]:
        noise = torch.nn.functional.dropout(torch.ones(5000, device="npu"))
        return [torch.rand(7, device="npu"), noise, torch.empty(5, device="npu").normal_(generator=own)]

    torch.npu.manual_seed(5)
    expected = [value.clone() for value in (*draw(), *draw())]
    torch.npu.manual_seed(5)
    own.manual_seed(3)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        drawn = draw()
    for wanted in (expected[:3], expected[3:]):
        graph.replay()
        assert all(torch.equal(one, other) for one, other in zip(drawn, wanted, strict=True))


def test_states_that_a_capture_reads_and_sets_are_read_and_set_by_replays(tmp_path: Path) -> None:
    torch.npu.manual_seed(9)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        torch.rand(3, device="npu")
        state = torch.npu.get_rng_state()
        first = torch.rand(4, device="npu")
        torch.npu.set_rng_state(state)
        second = torch.rand(4, device="npu")
    graph.replay()
    once = first.clone()
    assert torch.equal(first, second)
    graph.replay()
    assert torch.equal(first, second)
    assert not torch.equal(first, once)
    graph.debug_dump(str(tmp_path / "graph.txt"))
    assert {"get_rng_state", "set_rng_state"} <= set((tmp_path / "graph.txt").read_text().split())


def test_a_capture_takes_no_other_seed() -> None:
    torch.npu.manual_seed(1)
    other = torch.npu.get_rng_state()
    torch.npu.manual_seed(0)
    for change in (lambda: torch.npu.manual_seed(1), lambda: torch.npu.set_rng_state(other)):
        graph = torch.npu.NPUGraph()
        with (
            pytest.raises(RuntimeError, match=r"only if new seed is the same.*Got 1, the generator of npu:0 began with 0"),
            torch.npu.graph(graph),
        ):
            change()
    torch.npu.manual_seed(1)


def test_a_generator_can_be_registered_before_the_capture() -> None:
    own, graph = torch.Generator("npu").manual_seed(4), torch.npu.NPUGraph()
    wanted = torch.rand(3, device="npu", generator=torch.Generator("npu").manual_seed(4))
    graph.register_generator_state(own)
    with torch.npu.graph(graph):
        drawn = torch.rand(3, device="npu", generator=own)
    graph.replay()
    assert torch.equal(drawn, wanted)


def test_an_update_replaces_arguments_that_were_given_by_place_or_by_name() -> None:
    query, keys, values = (torch.randn(1, 2, length, 8, device="npu") for length in (1, 6, 6))
    out, logarithms = torch.empty(1, 2, 1, 8, device="npu"), torch.empty(1, device="npu")
    cache, table = torch.randn(3, 4, 1, 8, device="npu"), torch.tensor([[2, 0]], dtype=torch.int32, device="npu")
    paged = torch.empty(1, 2, 8, device="npu")
    options = {"num_heads": 2, "input_layout": "BNSD", "scale": 0.3, "out": [out, logarithms]}

    def lengths(count: int) -> torch.Tensor:
        return torch.tensor([count], dtype=torch.int32)

    def attend(count: int) -> None:
        torch_npu.npu_fused_infer_attention_score.out(query, keys, values, actual_seq_lengths_kv=[count], **options)
        torch_npu._npu_paged_attention(query[:, :, 0], cache, cache, 1, 2, 0.3, table, lengths(count), paged)

    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        attend(6)
    graph.update([{"actual_seq_lengths_kv": [3]}])
    graph.update([{"context_lens": lengths(3)}])
    graph.replay()
    replayed = [tensor.cpu() for tensor in (out, paged)]
    attend(3)
    for found, expected in zip(replayed, (out, paged), strict=True):
        torch.testing.assert_close(found, expected.cpu())
