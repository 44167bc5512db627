"""acl.fv: short features in repositories, and searching them for the nearest ones: one query in all (1:N), or many in one (N:M)."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from anycann.acl.codes import Code
from anycann.acl.entries import status
from anycann.acl.errors import AclError
from anycann.acl.feature_descriptions import (
    MANY_IN_ONE,
    MOST_OF_ONE,
    ONE_IN_ALL,
    FeatureInfo,
    InitPara,
    RepoRange,
    SearchInput,
    SearchResult,
    check,
)
from anycann.acl.feature_repositories import CODES, FEATURE_BYTES, PARTS, TABLE_BYTES, Repositories
from anycann.acl.media_memory import device_bytes
from anycann.acl.process import PROCESS
from anycann.runtime.device import Device
from anycann.support.records import dataclass

_ONLY = (0, 0)  # the repository of N:M


@dataclass
class _Module:
    """What acl.fv.init made ready."""

    limits: dict[int, int]
    device: Device
    nbytes: int
    repositories: dict[int, Repositories]


class _State:
    """The module of the process, if it is ready."""

    def __init__(self) -> None:
        self.module: _Module | None = None
        self.lock = threading.RLock()

    def get(self) -> _Module:
        if self.module is None:
            raise AclError(Code.FAILURE, "searching is not ready; call acl.fv.init first")
        return self.module

    def release(self) -> None:
        with self.lock:
            gone, self.module = self.module, None
        if gone is not None:
            gone.device.give_back(gone.nbytes)


_STATE = _State()
PROCESS.ending.append(_STATE.release)


# ---- the module
@status("acl.fv.init")
def init(init_para: int) -> None:
    """Make searching ready, on this thread's device, whose memory must have room for all features."""
    wanted, device = PROCESS.handles.get(init_para, InitPara), PROCESS.context().device
    with _STATE.lock:
        if _STATE.module is not None:
            raise AclError(Code.FAILURE, "acl.fv.init was called before; acl.fv.release comes first")
        nbytes = wanted.features * FEATURE_BYTES
        try:
            device.take(nbytes)
        except Exception as error:
            raise AclError(Code.RT_MEMORY_ALLOCATION, f"{wanted.features} features: {error}") from error
        repositories = {kind: Repositories(wanted.features, most) for kind, most in MOST_OF_ONE.items()}
        _STATE.module = _Module(dict(wanted.most), device, nbytes, repositories)


@status("acl.fv.release")
def release() -> None:
    """Forget all repositories."""
    _STATE.get()
    _STATE.release()


# ---- repositories
@status("acl.fv.repo_add")
def repo_add(type: int, feature_info: int) -> None:
    """Put features into a repository, which is there from then on. type: 0 1:N, behind those that it has; 1 N:M, in place of all."""
    _check_kind(type)
    info = PROCESS.handles.get(feature_info, FeatureInfo)
    codes = info.codes()
    with _STATE.lock:
        repositories = _STATE.get().repositories[type]
        if type == MANY_IN_ONE:
            if info.offset:
                raise AclError(Code.INVALID_PARAM, f"offset is {info.offset}; accepted: 0 in N:M")
            repositories.forget([_ONLY])
        repositories.add(info.key if type == ONE_IN_ALL else _ONLY, info.offset, codes)


@status("acl.fv.repo_del")
def repo_del(type: int, repo_range: int) -> None:
    """Forget the repositories of a range."""
    _check_kind(type)
    found = PROCESS.handles.get(repo_range, RepoRange)
    with _STATE.lock:
        repositories = _STATE.get().repositories[type]
        repositories.forget(repositories.within(found.first, found.last))


@status("acl.fv.delete")
def delete(feature_info: int) -> None:
    """Take one feature of 1:N away; the others keep their places."""
    info = _single(feature_info)
    with _STATE.lock:
        _STATE.get().repositories[ONE_IN_ALL].delete(info.key, info.offset)


@status("acl.fv.modify")
def modify(feature_info: int) -> None:
    """Write another feature in place of one of 1:N, which must be there."""
    info = _single(feature_info)
    codes = info.codes()
    with _STATE.lock:
        _STATE.get().repositories[ONE_IN_ALL].replace(info.key, info.offset, codes)


def _single(feature_info: int) -> FeatureInfo:
    info = PROCESS.handles.get(feature_info, FeatureInfo)
    if info.count != 1:
        raise AclError(Code.FAILURE, f"{info.count} features; accepted: one at a time")
    return info


# ---- searching
@status("acl.fv.search")
def search(type: int, search_input: int, search_result: int) -> None:
    """Write, for each query, its nearest features and how many there are, from place query * topK of the arrays on.

    There are as many as topK says, or acl.fv.init was told, whichever is less; fewer where there are no more features.
    """
    _check_kind(type)
    given, result = PROCESS.handles.get(search_input, SearchInput), PROCESS.handles.get(search_result, SearchResult)
    queries = given.queries
    check("the number of queries of the result", result.queries, queries.count, queries.count)
    if type == ONE_IN_ALL:
        check("the number of queries of 1:N", queries.count, 1, 1)
    needed = 4 * queries.count * given.most
    if result.nbytes < needed:
        raise AclError(Code.INVALID_PARAM, f"data_len is {result.nbytes}; accepted: {needed} and more")
    tables = device_bytes(queries.address, queries.count * TABLE_BYTES, "the query table").view(np.float32)
    places = [_numbers(address, needed, role) for address, role in zip(result.arrays, ("id_0", "id_1", "offset", "distance"), strict=True)]
    counts = _numbers(result.counts, 4 * result.queries, "result_num")
    with _STATE.lock:
        module = _STATE.get()
        repositories, most = module.repositories[type], min(given.most, module.limits[type])
        keys = repositories.within(given.range.first, given.range.last)
        for query, table in enumerate(tables.reshape(-1, PARTS, CODES)):
            found = repositories.nearest(keys, table, most)
            parts = (found.id0, found.id1, found.offsets, found.distances.view(np.uint32))
            counts[query] = len(found.distances)
            for place, part in zip(places, parts, strict=True):
                place[query * given.most :][: len(part)] = part


def _numbers(address: int, nbytes: int, role: str) -> NDArray[np.uint32]:
    return device_bytes(address, nbytes, role).view(np.uint32)


def _check_kind(kind: int) -> None:
    if kind not in MOST_OF_ONE:
        raise AclError(Code.INVALID_PARAM, f"type is {kind}; accepted: 0 (1:N), 1 (N:M)")
