"""Sparse tensors on the npu, COO and compressed, compute what they compute on the cpu."""

from __future__ import annotations

import copy

import pytest
import torch

from anycann.adapters.torch.device import sparse

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def matrix() -> torch.Tensor:
    return torch.sparse_coo_tensor([[0, 2, 2], [1, 0, 3]], [1.0, 2.0, 3.0], (3, 4))


def test_a_sparse_tensor_moves_and_keeps_its_parts(matrix: torch.Tensor) -> None:
    there = matrix.npu(1)
    assert there.device == torch.device("npu:1")
    assert there.layout == torch.sparse_coo
    assert there._values().device == torch.device("npu:1")
    assert torch.equal(there.to_dense().cpu(), matrix.to_dense())
    assert torch.equal(there.cpu().to_dense(), matrix.to_dense())
    assert torch.equal(matrix.to_dense().npu().to_sparse().coalesce().indices().cpu(), matrix.coalesce().indices())


def test_products_sums_and_changes_agree(matrix: torch.Tensor) -> None:
    there, dense = matrix.npu(), torch.randn(4, 5)
    torch.testing.assert_close(torch.sparse.mm(there, dense.npu()).cpu(), torch.sparse.mm(matrix, dense))
    torch.testing.assert_close((there + there).to_dense().cpu(), (matrix + matrix).to_dense())
    torch.testing.assert_close(torch.sparse.sum(there).cpu(), torch.sparse.sum(matrix))
    there.mul_(3)
    torch.testing.assert_close(there.to_dense().cpu(), matrix.to_dense() * 3)


@pytest.mark.parametrize("kind", [torch.optim.SparseAdam, torch.optim.SGD])
def test_sparse_gradients_of_an_embedding_train_it(kind: type[torch.optim.Optimizer]) -> None:
    here = torch.nn.Embedding(10, 4, sparse=True)
    there = copy.deepcopy(here).npu()
    for module, rows in ((here, torch.tensor([1, 2, 1])), (there, torch.tensor([1, 2, 1]).npu())):
        optimizer = kind(module.parameters(), lr=0.1)  # type: ignore[call-arg]
        module(rows).pow(2).sum().backward()
        optimizer.step()
    assert there.weight.grad.layout == torch.sparse_coo
    torch.testing.assert_close(there.weight.cpu(), here.weight)


COMPRESSED = [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]


def _compressed(layout: torch.layout) -> torch.Tensor:
    dense = torch.tensor([[0, 1.0, 0, 0], [2.0, 0, 0, 0], [0, 0, 0, 3.0], [0, 0, 4.0, 0]])
    return dense.to_sparse(layout=layout, blocksize=(2, 2) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None)


@pytest.mark.parametrize("layout", COMPRESSED, ids=str)
def test_compressed_layouts_move_and_are_made(layout: torch.layout) -> None:
    here = _compressed(layout)
    there = here.npu(1)
    assert (there.device, there.layout, there.values().device) == (torch.device("npu:1"), layout, torch.device("npu:1"))
    assert torch.equal(there.to_dense().cpu(), here.to_dense())
    assert torch.equal(there.cpu().values(), here.values())
    made = here.to_dense().npu().to_sparse(layout=layout, blocksize=here.values().shape[1:] or None)
    assert torch.equal(made.to_dense().cpu(), here.to_dense())
    assert copy.deepcopy(there).layout == layout


def test_products_of_compressed_rows_agree_forwards_and_backwards() -> None:
    here, factor = _compressed(torch.sparse_csr), torch.randn(4, 3)
    there = here.npu().requires_grad_()
    for reduce in ("sum", "mean", "amax", "amin"):
        given, dense = here.clone().requires_grad_(), factor.clone().requires_grad_()
        y, expected = torch.sparse.mm(there, moved := factor.npu().requires_grad_(), reduce), torch.sparse.mm(given, dense, reduce)
        torch.testing.assert_close(y.cpu(), expected)
        for mine, theirs in zip(*(torch.autograd.grad(r.square().sum(), g) for r, g in ((y, (there, moved)), (expected, (given, dense)))),
                                strict=True):  # fmt: skip
            torch.testing.assert_close(mine.cpu().to_dense(), theirs.to_dense())


def test_compressed_tensors_are_changed_in_place_and_added() -> None:
    here = _compressed(torch.sparse_csr)
    there = here.npu()
    there.mul_(3)
    torch.testing.assert_close(there.to_dense().cpu(), here.to_dense() * 3)
    torch.testing.assert_close((there + there).to_dense().cpu(), here.to_dense() * 6)
    out = there.clone()
    torch.sin(there, out=out)
    torch.testing.assert_close(out.to_dense().cpu(), torch.sin(here.to_dense() * 3))
    torch.add(there, torch.eye(4).to_sparse_csr().npu(), out=out)  # more of them than out had
    torch.testing.assert_close(out.to_dense().cpu(), here.to_dense() * 3 + torch.eye(4))


def test_other_layouts_are_refused_by_name() -> None:
    with pytest.raises(RuntimeError, match=r"layout torch\._mkldnn is not supported on npu; accepted: torch\.strided, torch\.sparse_coo"):
        sparse.to_npu(torch.ones(2, 2).to_mkldnn(), 0)
