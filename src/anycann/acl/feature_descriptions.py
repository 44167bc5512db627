"""acl.fv: what a program describes before it searches: how many features there will be, features, queries, and where results go."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.entries import status, value
from anycann.acl.errors import AclError
from anycann.acl.feature_repositories import FEATURE_BYTES, HEAD_BYTES, TABLE_BYTES, Codes
from anycann.acl.media_memory import device_bytes
from anycann.acl.process import PROCESS
from anycann.support.records import dataclass

ONE_IN_ALL, MANY_IN_ONE = 0, 1  # aclfvSearchType
_MOST_FEATURES, _LAST_ID = 500_000_000, 1023
MOST_OF_ONE = {ONE_IN_ALL: 1_000_000, MANY_IN_ONE: 10_000_000}
_MOST_QUERIES, _MOST_RESULTS = 1024, 4800
_LEAST_LIMITS = {ONE_IN_ALL: 2, MANY_IN_ONE: 500}  # of how many results a search may give


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


# ---- how many features there will be
@value("acl.fv.create_init_para", returns="init_para")
def create_init_para(fs_num: int) -> int:
    """How many features there will be in all: 1 to 500000000."""
    check("fs_num", fs_num, 1, _MOST_FEATURES)
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
    check("the number of results", most, _LEAST_LIMITS[kind], _MOST_RESULTS)
    found.most[kind] = most


# ---- features, queries and results
@value("acl.fv.create_feature_info", returns="feature_info")
def create_feature_info(
    id0: int, id1: int, offset: int, feature_len: int, feature_count: int, feature_data: int, feature_data_len: int
) -> int:
    """Features of 36 bytes, four that are 0 and 32 codes, at `feature_data`, for places from `offset` on of a repository.

    id0, id1: 0 to 1023 each, 0 for N:M.
    """
    check("id0", id0, 0, _LAST_ID)
    check("id1", id1, 0, _LAST_ID)
    check("feature_count", feature_count, 0, MOST_OF_ONE[MANY_IN_ONE])
    check("feature_len", feature_len, FEATURE_BYTES, FEATURE_BYTES)
    check("feature_data_len", feature_data_len, feature_len * feature_count, feature_len * feature_count)
    _check_address("feature_data", feature_data)
    return PROCESS.handles.add(FeatureInfo((id0, id1), offset, feature_count, feature_data))


@value("acl.fv.create_repo_range", returns="repo_range")
def create_repo_range(id0_min: int, id0_max: int, id1_min: int, id1_max: int) -> int:
    """The repositories with id0 and id1 within these, the last ones included."""
    for name, low, high in (("id0", id0_min, id0_max), ("id1", id1_min, id1_max)):
        check(f"{name}_max", high, 0, _LAST_ID)
        check(f"{name}_min", low, 0, high)
    return PROCESS.handles.add(RepoRange((id0_min, id1_min), (id0_max, id1_max)))


@value("acl.fv.create_query_table", returns="query_table")
def create_query_table(query_cnt: int, table_len: int, table_data: int, table_data_len: int) -> int:
    """Queries (one in 1:N, at most 1024 in N:M), each a table of 32 x 256 float32: the distance of each part to each code."""
    check("query_cnt", query_cnt, 1, _MOST_QUERIES)
    check("table_len", table_len, TABLE_BYTES, TABLE_BYTES)
    check("table_data_len", table_data_len, query_cnt * table_len, query_cnt * table_len)
    _check_address("table_data", table_data)
    return PROCESS.handles.add(QueryTable(query_cnt, table_data))


@value("acl.fv.create_search_input", returns="search_input")
def create_search_input(query_table: int, repo_range: int, top_k: int) -> int:
    """Queries, the repositories to look in, and how many results each query shall have, 0 to 4800."""
    queries, within = PROCESS.handles.get(query_table, QueryTable), PROCESS.handles.get(repo_range, RepoRange)
    check("topK", top_k, 0, _MOST_RESULTS)
    return PROCESS.handles.add(SearchInput(queries, within, top_k))


@value("acl.fv.create_search_result", returns="search_result")
def create_search_result(
    query_cnt: int, result_num: int, result_num_data_len: int, id_0: int, id_1: int, result_offset: int, result_distance: int, data_len: int
) -> int:
    """Memory for results: uint32 at `result_num` for each query; `data_len` bytes each of uint32 id0, id1, offset and float32 distance."""
    arrays = (id_0, id_1, result_offset, result_distance)
    for name, address in zip(("result_num", "id_0", "id_1", "result_offset", "result_distance"), (result_num, *arrays), strict=True):
        _check_address(name, address)
    check("query_cnt", query_cnt, 1, _MOST_QUERIES)
    check("result_num_data_len", result_num_data_len, query_cnt * 4, query_cnt * 4)
    return PROCESS.handles.add(SearchResult(query_cnt, result_num, arrays, data_len))


def check(name: str, given: int, least: int, most: int) -> None:
    """Raises AclError for a number that is not within these."""
    if not least <= given <= most:
        accepted = str(least) if least == most else f"{least} to {most}"
        raise AclError(Code.INVALID_PARAM, f"{name} is {given}; accepted: {accepted}")


def _check_address(name: str, address: int) -> None:
    if not address:
        raise AclError(Code.INVALID_PARAM, f"{name} is null")


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
