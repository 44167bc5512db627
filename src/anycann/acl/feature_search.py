"""acl.fv: short features in repositories, and searching them for the nearest ones: one query in all (1:N), or many in one (N:M)."""

from __future__ import annotations

from dataclasses import dataclass
import threading
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from anycann.acl.codes import Code
from anycann.acl.entries import status, value
from anycann.acl.errors import AclError
from anycann.acl.feature_repositories import CODES, FEATURE_BYTES, HEAD_BYTES, PARTS, TABLE_BYTES, Codes, Repositories
from anycann.acl.media_memory import device_bytes
from anycann.acl.process import PROCESS
from anycann.runtime.device import Device

ONE_IN_ALL, MANY_IN_ONE = 0, 1  # aclfvSearchType
_MOST_FEATURES, _LAST_ID = 500_000_000, 1023
_MOST_OF_ONE = {ONE_IN_ALL: 1_000_000, MANY_IN_ONE: 10_000_000}
_MOST_QUERIES, _MOST_RESULTS = 1024, 4800
_LEAST_LIMITS = {ONE_IN_ALL: 2, MANY_IN_ONE: 500}  # of how many results a search may give
_ONLY = (0, 0)  # the repository of N:M


@dataclass
class InitPara:
    """How many features there will be, and the most results that a search gives, by its kind."""

    acl_word: ClassVar[str] = "parameter of acl.fv.create_init_para"
    features: int
    most: dict[int, int]


@dataclass(frozen=True)
class FeatureInfo:
    """Features at `address`, and where they belong."""

    acl_word: ClassVar[str] = "feature description"
    key: tuple[int, int]
    offset: int
    count: int
    address: int

    def codes(self) -> Codes:
        """A copy of their codes. Raises AclError where their memory is gone."""
        data = device_bytes(self.address, self.count * FEATURE_BYTES, "the features") if self.count else np.empty(0, np.uint8)
        return data.reshape(-1, FEATURE_BYTES)[:, HEAD_BYTES:].copy()


@dataclass(frozen=True)
class RepoRange:
    """Repositories between two pairs of numbers, both included."""

    acl_word: ClassVar[str] = "range of repositories"
    first: tuple[int, int]
    last: tuple[int, int]


@dataclass(frozen=True)
class QueryTable:
    """Tables of distances, one for each query."""

    acl_word: ClassVar[str] = "query table"
    count: int
    address: int


@dataclass(frozen=True)
class SearchInput:
    """Queries, where to look, and how many results each shall have."""

    acl_word: ClassVar[str] = "search input"
    queries: QueryTable
    range: RepoRange
    most: int


@dataclass(frozen=True)
class SearchResult:
    """Where results go: their number for each query, and arrays of `nbytes` bytes."""

    acl_word: ClassVar[str] = "search result"
    queries: int
    counts: int
    arrays: tuple[int, int, int, int]  # id0, id1, offset, distance
    nbytes: int


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
@value("acl.fv.create_init_para", returns="init_para")
def create_init_para(fs_num: int) -> int:
    """How many features there will be in all: 1 to 500000000."""
    _check("fs_num", fs_num, 1, _MOST_FEATURES)
    return PROCESS.handles.add(InitPara(fs_num, {ONE_IN_ALL: _MOST_RESULTS, MANY_IN_ONE: _LEAST_LIMITS[MANY_IN_ONE]}))


@status("acl.fv.set_1n_top_num")
def set_1n_top_num(init_para: int, most: int) -> None:
    """The most results of a query of 1:N: 2 to 4800, which it is before."""
    _set_most(init_para, ONE_IN_ALL, most)


@status("acl.fv.set_nm_top_num")
def set_nm_top_num(init_para: int, most: int) -> None:
    """The most results of a query of N:M: 500, which it is before, to 4800."""
    _set_most(init_para, MANY_IN_ONE, most)


def _set_most(init_para: int, kind: int, most: int) -> None:
    found = PROCESS.handles.get(init_para, InitPara)
    _check("the number of results", most, _LEAST_LIMITS[kind], _MOST_RESULTS)
    found.most[kind] = most


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
        repositories = {kind: Repositories(wanted.features, most) for kind, most in _MOST_OF_ONE.items()}
        _STATE.module = _Module(dict(wanted.most), device, nbytes, repositories)


@status("acl.fv.release")
def release() -> None:
    """Forget all repositories."""
    _STATE.get()
    _STATE.release()


# ---- repositories
@value("acl.fv.create_feature_info", returns="feature_info")
def create_feature_info(
    id0: int, id1: int, offset: int, feature_len: int, feature_count: int, feature_data: int, feature_data_len: int
) -> int:
    """Features of 36 bytes, four that are 0 and 32 codes, at `feature_data`, for places from `offset` on of a repository.

    id0, id1: 0 to 1023 each, 0 for N:M.
    """
    _check("id0", id0, 0, _LAST_ID)
    _check("id1", id1, 0, _LAST_ID)
    _check("feature_count", feature_count, 0, _MOST_OF_ONE[MANY_IN_ONE])
    _check("feature_len", feature_len, FEATURE_BYTES, FEATURE_BYTES)
    _check("feature_data_len", feature_data_len, feature_len * feature_count, feature_len * feature_count)
    _check_address("feature_data", feature_data)
    return PROCESS.handles.add(FeatureInfo((id0, id1), offset, feature_count, feature_data))


@value("acl.fv.create_repo_range", returns="repo_range")
def create_repo_range(id0_min: int, id0_max: int, id1_min: int, id1_max: int) -> int:
    """The repositories with id0 and id1 within these, the last ones included."""
    for name, low, high in (("id0", id0_min, id0_max), ("id1", id1_min, id1_max)):
        _check(f"{name}_max", high, 0, _LAST_ID)
        _check(f"{name}_min", low, 0, high)
    return PROCESS.handles.add(RepoRange((id0_min, id1_min), (id0_max, id1_max)))


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
@value("acl.fv.create_query_table", returns="query_table")
def create_query_table(query_cnt: int, table_len: int, table_data: int, table_data_len: int) -> int:
    """Queries (one in 1:N, at most 1024 in N:M), each a table of 32 x 256 float32: the distance of each part to each code."""
    _check("query_cnt", query_cnt, 1, _MOST_QUERIES)
    _check("table_len", table_len, TABLE_BYTES, TABLE_BYTES)
    _check("table_data_len", table_data_len, query_cnt * table_len, query_cnt * table_len)
    _check_address("table_data", table_data)
    return PROCESS.handles.add(QueryTable(query_cnt, table_data))


@value("acl.fv.create_search_input", returns="search_input")
def create_search_input(query_table: int, repo_range: int, top_k: int) -> int:
    """Queries, the repositories to look in, and how many results each query shall have, 0 to 4800."""
    queries, within = PROCESS.handles.get(query_table, QueryTable), PROCESS.handles.get(repo_range, RepoRange)
    _check("topK", top_k, 0, _MOST_RESULTS)
    return PROCESS.handles.add(SearchInput(queries, within, top_k))


@value("acl.fv.create_search_result", returns="search_result")
def create_search_result(
    query_cnt: int, result_num: int, result_num_data_len: int, id_0: int, id_1: int, result_offset: int, result_distance: int, data_len: int
) -> int:
    """Memory for results: uint32 at `result_num` for each query; `data_len` bytes each of uint32 id0, id1, offset and float32 distance."""
    arrays = (id_0, id_1, result_offset, result_distance)
    for name, address in zip(("result_num", "id_0", "id_1", "result_offset", "result_distance"), (result_num, *arrays), strict=True):
        _check_address(name, address)
    _check("query_cnt", query_cnt, 1, _MOST_QUERIES)
    _check("result_num_data_len", result_num_data_len, query_cnt * 4, query_cnt * 4)
    return PROCESS.handles.add(SearchResult(query_cnt, result_num, arrays, data_len))


@status("acl.fv.search")
def search(type: int, search_input: int, search_result: int) -> None:
    """Write, for each query, its nearest features and how many there are, from place query * topK of the arrays on.

    There are as many as topK says, or acl.fv.init was told, whichever is less; fewer where there are no more features.
    """
    _check_kind(type)
    given, result = PROCESS.handles.get(search_input, SearchInput), PROCESS.handles.get(search_result, SearchResult)
    queries = given.queries
    _check("the number of queries of the result", result.queries, queries.count, queries.count)
    if type == ONE_IN_ALL:
        _check("the number of queries of 1:N", queries.count, 1, 1)
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


def _check(name: str, given: int, least: int, most: int) -> None:
    if not least <= given <= most:
        accepted = str(least) if least == most else f"{least} to {most}"
        raise AclError(Code.INVALID_PARAM, f"{name} is {given}; accepted: {accepted}")


def _check_address(name: str, address: int) -> None:
    if not address:
        raise AclError(Code.INVALID_PARAM, f"{name} is null")


def _check_kind(kind: int) -> None:
    if kind not in _MOST_OF_ONE:
        raise AclError(Code.INVALID_PARAM, f"type is {kind}; accepted: 0 (1:N), 1 (N:M)")


# ---- handles that go
def _declare_end(name: str, kind: type) -> None:
    @status(f"acl.fv.{name}")
    def destroy(handle: int) -> None:
        """Forget it; null is nothing to forget."""
        if handle:
            PROCESS.handles.remove(handle, kind)


for _name, _kind in (
    ("destroy_init_para", InitPara), ("destory_init_para", InitPara), ("destroy_feature_info", FeatureInfo),
    ("destroy_repo_range", RepoRange), ("destroy_query_table", QueryTable), ("destroy_search_input", SearchInput),
    ("destroy_search_result", SearchResult),
):  # fmt: skip
    _declare_end(_name, _kind)
