"""Sparse tensors (COO) on the npu compute what they compute on the cpu."""

from __future__ import annotations

import copy

import pytest
import torch

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


def test_other_layouts_are_refused_by_name() -> None:
    with pytest.raises(RuntimeError, match=r"layout torch\.sparse_csr is not supported on npu"):
        torch.ones(2, 2, device="npu").to_sparse_csr()
