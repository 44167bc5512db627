"""acl.fv: short features in repositories and the nearest ones to a query, against sums written out one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
import pytest

INVALID, FAILURE = 100000, 500001
ONE_IN_ALL, MANY_IN_ONE = 0, 1
PARTS, FEATURE, TABLE = 32, 36, 32 * 1024
Key = tuple[int, int]
Row = tuple[Key, int, float]


def features(rng: np.random.Generator, count: int) -> NDArray[np.uint8]:
    made = rng.integers(0, 256, (count, FEATURE), np.uint8)
    made[:, :4] = 0
    return made


def tables(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    return rng.random((count, PARTS, 256), np.float32)


@dataclass
class Program:
    """What a program of acl.fv has at hand."""

    acl: ModuleType

    def memory(self, data: NDArray[np.generic]) -> int:
        ptr, ret = self.acl.rt.malloc(max(data.nbytes, 1), 0)
        assert ret == 0
        self.acl.util.ptr_to_numpy(ptr, (data.nbytes,), 2)[:] = np.frombuffer(data.tobytes(), np.uint8)
        return int(ptr)

    def info(self, key: Key, offset: int, made: NDArray[np.uint8]) -> int:
        return int(self.acl.fv.create_feature_info(*key, offset, FEATURE, len(made), self.memory(made), made.nbytes))

    def add(self, kind: int, key: Key, offset: int, made: NDArray[np.uint8]) -> int:
        info = self.info(key, offset, made)
        ret = self.acl.fv.repo_add(kind, info)
        assert self.acl.fv.destroy_feature_info(info) == 0
        return int(ret)

    def ready(self, count: int = 100000, *settings: Callable[[int], int]) -> None:
        para = self.acl.fv.create_init_para(count)
        for change in settings:
            assert change(para) == 0
        assert self.acl.fv.init(para) == 0
        assert self.acl.fv.destroy_init_para(para) == 0

    def search(
        self, kind: int, queries: NDArray[np.float32], most: int, within: tuple[int, int, int, int] = (0, 1023, 0, 1023)
    ) -> list[list[Row]]:
        fv, count = self.acl.fv, len(queries)
        table = fv.create_query_table(count, TABLE, self.memory(queries), queries.nbytes)
        bounds = fv.create_repo_range(*within)
        given = fv.create_search_input(table, bounds, most)
        arrays = [self.memory(np.full(count * most, 0xEEEEEEEE, np.uint32)) for _ in range(4)]
        numbers = self.memory(np.full(count, 0xEEEEEEEE, np.uint32))
        result = fv.create_search_result(count, numbers, 4 * count, *arrays, 4 * count * most)
        assert 0 not in (table, bounds, given, result)
        assert fv.search(kind, given, result) == 0
        ends = ("search_result", result), ("search_input", given), ("repo_range", bounds), ("query_table", table)
        assert [getattr(fv, f"destroy_{name}")(handle) for name, handle in ends] == [0] * 4
        found = [self.acl.util.ptr_to_numpy(ptr, (count, most), 6) for ptr in arrays]
        far, rows = found[3].view(np.float32), []
        for query, hits in enumerate(self.acl.util.ptr_to_numpy(numbers, (count,), 6)):
            rows.append(
                [((int(found[0][query, n]), int(found[1][query, n])), int(found[2][query, n]), float(far[query, n])) for n in range(hits)]
            )
            assert all((part[query, hits:] == 0xEEEEEEEE).all() for part in found)  # nothing is written behind
        return rows


@pytest.fixture
def program(acl: ModuleType) -> Iterator[Program]:
    yield Program(acl)
    acl.fv.release()


def expected(stored: dict[Key, dict[int, NDArray[np.uint8]]], table: NDArray[np.float32]) -> list[Row]:
    rows = []
    for key, made in stored.items():
        for offset, feature in made.items():
            rows.append((key, offset, float(sum(float(table[part, feature[4 + part]]) for part in range(PARTS)))))
    return sorted(rows, key=lambda row: (row[2], row[:2]))


def check(found: list[Row], wanted: list[Row]) -> None:
    assert [row[:2] for row in found] == [row[:2] for row in wanted]
    np.testing.assert_allclose([row[2] for row in found], [row[2] for row in wanted], rtol=1e-5)


def placed(made: NDArray[np.uint8], first: int = 0) -> dict[int, NDArray[np.uint8]]:
    return dict(enumerate(made, first))


def test_one_query_finds_its_nearest_features(program: Program) -> None:
    rng = np.random.default_rng()
    program.ready()
    one, two, three = features(rng, 700), features(rng, 1), features(rng, 250)
    assert [
        program.add(ONE_IN_ALL, (0, 0), 0, one),
        program.add(ONE_IN_ALL, (0, 0), 700, two),
        program.add(ONE_IN_ALL, (7, 1023), 0, three),
    ] == [0] * 3
    stored = {(0, 0): placed(one) | placed(two, 700), (7, 1023): placed(three)}
    query = tables(rng, 1)
    check(program.search(ONE_IN_ALL, query, 20)[0], expected(stored, query[0])[:20])
    check(program.search(ONE_IN_ALL, query, 4800)[0], expected(stored, query[0]))
    check(program.search(ONE_IN_ALL, query, 5, (1, 7, 0, 1023))[0], expected({(7, 1023): stored[7, 1023]}, query[0])[:5])
    assert program.search(ONE_IN_ALL, query, 5, (1, 6, 0, 1023)) == [[]]
    assert program.search(ONE_IN_ALL, query, 0) == [[]]
    assert program.search(MANY_IN_ONE, query, 5) == [[]]


def test_features_that_are_more_than_are_looked_at_at_once_are_all_found(program: Program) -> None:
    rng = np.random.default_rng()
    program.ready()
    made, query = features(rng, 20000), tables(rng, 1)
    assert program.add(ONE_IN_ALL, (3, 4), 0, made) == 0
    every = query[0][np.arange(PARTS), made[:, 4:]].astype(np.float64).sum(axis=1)
    found = program.search(ONE_IN_ALL, query, 4800)[0]
    assert len({row[1] for row in found}) == 4800
    np.testing.assert_allclose([row[2] for row in found], np.sort(every)[:4800], rtol=1e-5)
    np.testing.assert_allclose([row[2] for row in found], every[[row[1] for row in found]], rtol=1e-5)


def test_a_feature_is_deleted_and_another_changed_where_they_are(program: Program) -> None:
    rng = np.random.default_rng()
    program.ready()
    made, other, query = features(rng, 30), features(rng, 1), tables(rng, 1)
    assert program.add(ONE_IN_ALL, (1, 1), 0, made) == 0
    fv = program.acl.fv
    assert fv.delete(program.info((1, 1), 11, made[11:12])) == 0
    assert fv.modify(program.info((1, 1), 12, other)) == 0
    stored = {(1, 1): {**placed(made), 12: other[0]}}
    del stored[1, 1][11]
    check(program.search(ONE_IN_ALL, query, 100)[0], expected(stored, query[0]))
    for call in (fv.delete, fv.modify):  # gone, never there, no such repository
        assert [call(program.info(key, offset, other)) for key, offset in (((1, 1), 11), ((1, 1), 30), ((1, 2), 0))] == [FAILURE] * 3
        assert call(program.info((1, 1), 0, made[:2])) == FAILURE
    assert program.add(ONE_IN_ALL, (1, 1), 29, other) == FAILURE  # the place of the deleted one counts
    assert "offset 29 in repository (1, 1); accepted: 30" in program.acl.get_recent_err_msg()
    assert program.add(ONE_IN_ALL, (1, 1), 30, other) == 0


def test_many_queries_search_one_repository(program: Program) -> None:
    rng = np.random.default_rng()
    program.ready()
    old, made, queries = features(rng, 10), features(rng, 120), tables(rng, 3)
    assert [program.add(MANY_IN_ONE, (0, 0), 0, each) for each in (old, made)] == [0, 0]  # the later in place of the earlier
    assert program.add(MANY_IN_ONE, (0, 0), 120, made) == INVALID
    for found, query in zip(program.search(MANY_IN_ONE, queries, 9), queries, strict=True):
        check(found, expected({(0, 0): placed(made)}, query)[:9])
    bounds = program.acl.fv.create_repo_range(0, 0, 0, 0)
    assert program.acl.fv.repo_del(MANY_IN_ONE, bounds) == 0
    assert program.search(MANY_IN_ONE, queries, 9) == [[], [], []]


def test_results_are_no_more_than_was_said_at_the_start(program: Program) -> None:
    rng = np.random.default_rng()
    program.ready(50, lambda para: int(program.acl.fv.set_1n_top_num(para, 3)))
    made, query = features(rng, 50), tables(rng, 1)
    assert program.add(ONE_IN_ALL, (0, 0), 0, made[:40]) == 0
    check(program.search(ONE_IN_ALL, query, 7)[0], expected({(0, 0): placed(made[:40])}, query[0])[:3])
    assert program.add(ONE_IN_ALL, (0, 1), 0, made[:11]) == FAILURE  # 50 in all
    assert "50 in all" in program.acl.get_recent_err_msg()
    assert program.add(ONE_IN_ALL, (0, 1), 0, made[:10]) == 0


def test_repositories_of_a_range_are_forgotten(program: Program) -> None:
    rng = np.random.default_rng()
    program.ready()
    made, query = features(rng, 4), tables(rng, 1)
    for key in ((0, 0), (0, 1), (1, 0), (2, 2)):
        assert program.add(ONE_IN_ALL, key, 0, made) == 0
    bounds = program.acl.fv.create_repo_range(0, 1, 0, 0)
    assert program.acl.fv.repo_del(ONE_IN_ALL, bounds) == 0
    check(program.search(ONE_IN_ALL, query, 100)[0], expected({(0, 1): placed(made), (2, 2): placed(made)}, query[0]))
    assert program.add(ONE_IN_ALL, (0, 0), 0, made) == 0


def test_the_module_is_ready_once_and_takes_memory_of_the_device(program: Program) -> None:
    fv, acl = program.acl.fv, program.acl
    assert fv.release() == FAILURE
    made = features(np.random.default_rng(), 1)
    assert program.add(ONE_IN_ALL, (0, 0), 0, made) == FAILURE
    assert "call acl.fv.init first" in acl.get_recent_err_msg()
    free = acl.rt.get_mem_info(1)[0]
    program.ready(1000)
    assert acl.rt.get_mem_info(1)[0] <= free - 1000 * FEATURE
    para = fv.create_init_para(10)
    assert fv.init(para) == FAILURE
    assert [fv.release(), fv.release()] == [0, FAILURE]
    huge = fv.create_init_para(500_000_000)
    available = acl.rt.get_mem_info(1)[0]
    assert fv.init(huge) == (0 if available >= 500_000_000 * FEATURE else 207001)


def test_wrong_descriptions_are_null_and_say_why(program: Program) -> None:
    fv, acl = program.acl.fv, program.acl
    ptr = program.memory(np.zeros(2 * TABLE, np.uint8))
    wrong: list[tuple[Callable[..., int], tuple[int, ...], str]] = [
        (fv.create_init_para, (0,), "fs_num is 0"), (fv.create_init_para, (500_000_001,), "fs_num"),
        (fv.create_feature_info, (1024, 0, 0, 36, 1, ptr, 36), "id0 is 1024"), (fv.create_feature_info, (0, -1, 0, 36, 1, ptr, 36), "id1"),
        (fv.create_feature_info, (0, 0, 0, 32, 1, ptr, 32), "feature_len is 32; accepted: 36"),
        (fv.create_feature_info, (0, 0, 0, 36, 2, ptr, 36), "feature_data_len"), (fv.create_feature_info, (0, 0, 0, 36, 1, 0, 36), "null"),
        (fv.create_feature_info, (0, 0, 0, 36, 10_000_001, ptr, 36), "feature_count"),
        (fv.create_repo_range, (0, 1024, 0, 0), "id0_max"), (fv.create_repo_range, (0, 0, 2, 1), "id1_min is 2; accepted: 0 to 1"),
        (fv.create_query_table, (1025, TABLE, ptr, TABLE), "query_cnt"), (fv.create_query_table, (1, 100, ptr, 100), "table_len is 100"),
        (fv.create_query_table, (2, TABLE, ptr, TABLE), "table_data_len"), (fv.create_query_table, (1, TABLE, 0, TABLE), "null"),
        (fv.create_search_result, (1, 0, 4, ptr, ptr, ptr, ptr, 4), "result_num is null"),
        (fv.create_search_result, (1, ptr, 4, ptr, ptr, ptr, 0, 4), "result_distance is null"),
        (fv.create_search_result, (2, ptr, 4, ptr, ptr, ptr, ptr, 8), "result_num_data_len is 4; accepted: 8"),
    ]  # fmt: skip
    for call, arguments, words in wrong:
        assert call(*arguments) == 0
        assert words in acl.get_recent_err_msg()
    table, bounds = fv.create_query_table(1, TABLE, ptr, TABLE), fv.create_repo_range(0, 0, 0, 0)
    assert fv.create_search_input(bounds, bounds, 1) == 0
    assert fv.create_search_input(table, 0, 1) == 0
    assert fv.create_search_input(table, bounds, 4801) == 0
    para = fv.create_init_para(1)
    assert [fv.set_1n_top_num(para, most) for most in (1, 2, 4800, 4801)] == [INVALID, 0, 0, INVALID]
    assert [fv.set_nm_top_num(para, most) for most in (499, 500, 4800, 4801)] == [INVALID, 0, 0, INVALID]
    assert [fv.set_1n_top_num(table, 2), fv.init(table), fv.init(0)] == [INVALID] * 3
    assert [fv.destroy_query_table(bounds), fv.destroy_query_table(table), fv.destroy_query_table(table)] == [INVALID, 0, INVALID]
    assert [fv.destroy_init_para(0), fv.destory_init_para(para)] == [0, 0]


def test_a_search_looks_at_everything_before_it_writes(program: Program) -> None:
    fv, acl = program.acl.fv, program.acl
    program.ready()
    ptr, host = program.memory(np.zeros(2 * TABLE, np.uint8)), acl.rt.malloc_host(TABLE)[0]
    bounds, table = fv.create_repo_range(0, 0, 0, 0), fv.create_query_table(1, TABLE, ptr, TABLE)
    given = fv.create_search_input(table, bounds, 5)

    def result(count: int = 1, distance: int = ptr, nbytes: int = 20) -> int:
        return int(fv.create_search_result(count, ptr, 4 * count, ptr, ptr, ptr, distance, nbytes))

    two = fv.create_search_input(fv.create_query_table(2, TABLE, ptr, 2 * TABLE), bounds, 2)
    lost = fv.create_search_input(fv.create_query_table(1, TABLE, ptr + TABLE + 4, TABLE), bounds, 5)
    assert fv.search(2, given, result()) == INVALID
    assert fv.search(ONE_IN_ALL, given, result(2, nbytes=40)) == INVALID
    assert fv.search(ONE_IN_ALL, two, result(2)) == INVALID  # one query in 1:N
    assert fv.search(MANY_IN_ONE, two, result(2)) == 0
    assert fv.search(ONE_IN_ALL, given, result(nbytes=16)) == INVALID
    assert "data_len is 16; accepted: 20" in acl.get_recent_err_msg()
    assert fv.search(ONE_IN_ALL, given, result(distance=host)) == INVALID
    assert fv.search(ONE_IN_ALL, given, result(distance=ptr + 2 * TABLE - 16)) == INVALID
    assert fv.search(ONE_IN_ALL, lost, result()) == INVALID
    assert fv.search(ONE_IN_ALL, given, given) == INVALID
    assert fv.search(ONE_IN_ALL, 0, result()) == INVALID
    assert fv.repo_del(3, bounds) == INVALID
    assert fv.repo_add(3, bounds) == INVALID
    assert fv.repo_add(ONE_IN_ALL, 12345) == INVALID
    info = fv.create_feature_info(0, 0, 0, FEATURE, 1, host, FEATURE)
    assert fv.repo_add(ONE_IN_ALL, info) == INVALID
    assert "memory of the host" in acl.get_recent_err_msg()
