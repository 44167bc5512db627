"""Writes to places of a tensor that indices name, and reads from them."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.registry import composed, opaque, refuse, require, sizes


@composed("npu_scatter_nd_update_(Tensor(a!) self, Tensor indices, Tensor updates) -> Tensor(a!)")
def scatter_nd_update_(self: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    """Writes rows of updates to where the last axis of indices points: self[indices[i]] = updates[i]."""
    operator, depth = "npu_scatter_nd_update", indices.shape[-1]
    expected = (*indices.shape[:-1], *self.shape[depth:])
    fits = depth <= self.dim() and tuple(updates.shape) == expected
    require(fits, operator, f"self, indices and updates of {sizes(self, indices, updates)}", f"updates of {expected}")
    return self.index_put_(tuple(indices.long().unbind(-1)), updates.to(self.dtype))


@composed("npu_scatter_nd_update(Tensor self, Tensor indices, Tensor updates) -> Tensor")
def scatter_nd_update(self: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    """A copy with rows of updates where the last axis of indices points."""
    return scatter_nd_update_(self.clone(), indices, updates)


@composed("scatter_update_(Tensor(a!) self, Tensor indices, Tensor updates, int axis) -> Tensor(a!)")
def scatter_update_(self: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, axis: int) -> torch.Tensor:
    """Writes updates[i] into entry i of the first axis (or indices[i, 0]), along `axis` from indices[i] (or indices[i, 1]) on."""
    operator, axis = "scatter_update", axis % self.dim()
    require(self.dim() == updates.dim() and axis > 0, operator, f"axis {axis} of {sizes(self, updates)}", "equal ranks, not the first axis")
    rows = torch.arange(indices.shape[0], device=self.device) if indices.dim() == 1 else indices[:, 0].long()
    first = indices.long() if indices.dim() == 1 else indices[:, 1].long()
    along = first[:, None] + torch.arange(updates.shape[axis], device=self.device)
    self.movedim(axis, 1).index_put_((rows[:, None], along), updates.movedim(axis, 1).to(self.dtype))
    return self


@composed("scatter_update(Tensor self, Tensor indices, Tensor updates, int axis) -> Tensor")
def scatter_update(self: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, axis: int) -> torch.Tensor:
    """A copy that `scatter_update_` has written to."""
    return scatter_update_(self.clone(), indices, updates, axis)


@composed("npu_gather_sparse_index(Tensor input, Tensor index) -> Tensor")
def gather_sparse_index(input: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Rows of the first axis: of shape index.shape + input.shape[1:]."""
    return input[index]


@composed("npu_masked_fill_range(Tensor self, Tensor start, Tensor end, Tensor value, int axis=-1) -> Tensor")
def masked_fill_range(self: torch.Tensor, start: torch.Tensor, end: torch.Tensor, value: torch.Tensor, axis: int = -1) -> torch.Tensor:
    """A copy with value[i] in places start[i, j] to end[i, j] of an axis: in entry j of the first axis if the axis is the last of several,
    in all of them otherwise."""
    operator, axis = "npu_masked_fill_range", axis % self.dim()
    require(start.dim() == 2 and start.shape == end.shape, operator, f"start and end of {sizes(start, end)}", "equal (ranges, entries)")
    if self.dim() > 3:
        refuse(operator, f"a tensor of {self.dim()} axes", "ranges are documented for one to three axes")
    places = torch.arange(self.shape[axis], device=self.device)
    result = self
    for number in range(start.shape[0]):
        inside = (places >= start[number][:, None]) & (places < end[number][:, None])
        each_entry = self.dim() > 1 and axis == self.dim() - 1
        if each_entry:
            mask = inside.reshape(inside.shape[0], *(1 for _ in self.shape[1:-1]), -1)
        else:
            mask = inside.any(0).reshape(-1, *(1 for _ in self.shape[axis + 1 :]))
        result = torch.where(mask, value.reshape(-1)[number].to(self.dtype), result)
    return result


_LIST = "Tensor indices, Tensor updates, Tensor? mask=None, str reduce='update', int axis=-2"


@opaque(f"npu_scatter_list_(Tensor(a!)[] self, {_LIST}) -> ()", shape=lambda *given, **options: None)
def scatter_list_(
    self: list[torch.Tensor],
    indices: torch.Tensor,
    updates: torch.Tensor,
    mask: torch.Tensor | None = None,
    reduce: str = "update",
    axis: int = -2,
) -> None:
    """Writes updates[i] into tensor i along `axis`, of its own axes, from indices[i] on, or from indices[i, 0] for indices[i, 1] places.

    Tensors whose mask is 0 stay as they are.
    """
    operator = "npu_scatter_list"
    if reduce != "update":
        refuse(operator, f"reduce={reduce!r}", "'update' is documented")
    require(
        len(self) == updates.shape[0] == indices.shape[0], operator, f"{len(self)} tensors, {sizes(indices, updates)}", "as many of each"
    )
    for number, tensor in enumerate(self):
        if mask is not None and not mask[number]:
            continue
        along = axis % tensor.dim()
        first, count = indices[number].tolist() if indices.dim() == 2 else (int(indices[number]), updates.shape[along + 1])
        tensor.narrow(along, first, count).copy_(updates[number].narrow(along, 0, count))


@composed(f"npu_scatter_list(Tensor[] self, {_LIST}) -> Tensor[]")
def scatter_list(
    self: list[torch.Tensor],
    indices: torch.Tensor,
    updates: torch.Tensor,
    mask: torch.Tensor | None = None,
    reduce: str = "update",
    axis: int = -2,
) -> list[torch.Tensor]:
    """Copies that `npu_scatter_list_` has written to."""
    copies = [tensor.clone() for tensor in self]
    torch.ops.npu.npu_scatter_list_(copies, indices, updates, mask, reduce, axis)
    return copies
