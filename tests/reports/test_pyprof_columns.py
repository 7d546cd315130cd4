"""PyProf's columns have its keys, headers and words."""

from __future__ import annotations

from typing import Any

import pytest

from pyprof2.reports.pyprof_columns import PYPROF_COLUMNS, PYPROF_DEFAULT, PYPROF_ONLY
from pyprof2.tables import PROFILE_COLUMNS
from tests.builders import profile_rows


def values(key: str, *rows: dict[str, Any]) -> list[Any]:
    """Return what column `key` makes of the rows."""
    made: list[Any] = PYPROF_COLUMNS[key].make(profile_rows(*rows)).tolist()
    return made


def test_there_are_the_twenty_keys_with_their_headers() -> None:
    assert {key: column.header for key, column in PYPROF_COLUMNS.items()} == {
        "idx": "Idx", "seq": "SeqId", "altseq": "AltSeqId", "tid": "TId", "layer": "Layer",
        "trace": "Trace", "dir": "Direction", "sub": "Sub", "mod": "Module", "op": "Op",
        "kernel": "Kernel", "params": "Params", "sil": "Sil(ns)", "tc": "TC",
        "device": "Device", "stream": "Stream", "grid": "Grid", "block": "Block",
        "flops": "FLOPs", "bytes": "Bytes",
    }  # fmt: skip


def test_the_default_columns_are_those_of_pyprof() -> None:
    assert ",".join(PYPROF_DEFAULT) == "idx,dir,sub,mod,op,kernel,params,sil"


def test_keys_that_only_pyprof_has_are_those_that_are_not_ours() -> None:
    ours = set(PROFILE_COLUMNS) - {"tid"}  # the same under both

    assert set(PYPROF_ONLY) == set(PYPROF_COLUMNS) - ours


def test_direction_is_fprop_bprop_or_na() -> None:
    directions = ["forward", "backward", "optimizer", "other", None]

    made = values("dir", *({"direction": d} for d in directions))

    assert made == ["fprop", "bprop", "na", "na", "na"]


def test_sub_numbers_the_kernels_of_one_op_call() -> None:
    calls = [(0, 5), (0, 5), (1, 5), (0, 6), (0, 5), (0, None), (0, None)]

    made = values("sub", *({"rank": rank, "op_id": op_id} for rank, op_id in calls))

    assert made == [0, 1, 0, 0, 2, 0, 0]


def test_each_replay_of_a_graph_numbers_the_kernels_of_a_call_anew() -> None:
    # Of one captured op, and of one that is in another recording.
    calls = [(5, 0), (5, 0), (5, 2), (5, 2), (None, 4), (None, 4)]

    made = values("sub", *({"op_id": op_id, "call_id": call_id} for op_id, call_id in calls))

    assert made == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("op", "mod", "name"),
    [
        ("aten::addmm", "aten", "addmm"),
        ("_c10d_functional::all_reduce", "_c10d_functional", "all_reduce"),
        ("AddmmBackward0", "na", "AddmmBackward0"),
        (None, "na", "na"),
    ],
)
def test_module_and_op_are_the_two_parts_of_the_name(op: str | None, mod: str, name: str) -> None:
    assert values("mod", {"op": op}) == [mod]
    assert values("op", {"op": op}) == [name]


@pytest.mark.parametrize(
    ("row", "word"),
    [
        pytest.param({"op": "mm", "tensor_core": "yes"}, "1", id="used"),
        pytest.param(
            {"op": "mm", "tensor_core": "no", "tensor_core_eligible": True}, "0", id="could have"
        ),
        pytest.param(
            {"op": "mm", "tensor_core": "no", "tensor_core_eligible": False}, "-", id="could not"
        ),
        pytest.param({"op": "add", "tensor_core": "no"}, "-", id="no"),
        pytest.param({"op": "mm", "tensor_core": "unknown"}, "na", id="unknown"),
        pytest.param({"tensor_core": "no"}, "na", id="no op"),
        pytest.param({"tensor_core": "yes"}, "1", id="used, no op"),
        pytest.param({"op": "copy_", "category": "memcpy"}, "-", id="copy"),
    ],
)
def test_tensor_cores_are_1_0_dash_or_na(row: dict[str, Any], word: str) -> None:
    assert values("tc", row) == [word]


def test_names_and_params_have_no_blanks_and_what_is_missing_has_a_word() -> None:
    row = {"kernel_short": "void at::add <4>", "params": "M=1, N=2", "sequence_nr": 42}

    assert values("kernel", row, {}) == ["void_at::add_<4>", "na"]
    assert values("params", row, {}) == ["M=1,N=2,", "na=na,"]
    assert values("seq", row, {}) == ["42", "-"]
    assert [values(key, {}) for key in ("altseq", "layer", "trace")] == [["-"]] * 3


def test_the_trace_is_the_whole_stack_outermost_first() -> None:
    deep = {"stack": "train.py:90 > net.py:12 > my/layer.py:7", "source": "net.py:12"}

    made = values("trace", deep, {"source": "net.py:12"}, {})

    assert made == ["train.py:90,net.py:12,my/layer.py:7", "net.py:12", "-"]


@pytest.mark.parametrize(
    ("own", "around", "seq", "altseq"),
    [
        pytest.param(1065, "1064", "1065", "1064", id="linear around addmm"),
        pytest.param(9, "7,8", "9", "7,8", id="several"),
        pytest.param(9, None, "9", "-", id="alone"),
        pytest.param(None, "7,8", "8", "7", id="an op that autograd does not count"),
        pytest.param(None, "7", "7", "-", id="the same in one that it does"),
        pytest.param(None, None, "-", "-", id="none"),
    ],
)
def test_further_sequence_numbers_are_those_of_the_ops_around(
    own: int | None, around: str | None, seq: str, altseq: str
) -> None:
    row = {"sequence_nr": own, "other_sequence_nrs": around}

    assert (values("seq", row), values("altseq", row)) == ([seq], [altseq])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"params": "M=1, N=2", "signature": "aten::mm([1,2] f32)"}, "M=1,N=2,"),
        (
            {"category": "memcpy", "copy_kind": "h2d pageable", "bytes": 648},
            "bytes=648,kind=h2d_pageable,",
        ),
        ({"category": "memset", "bytes": 7680}, "bytes=7680,kind=memset,"),
        ({"category": "memcpy", "copy_kind": "d2d"}, "kind=d2d,"),
        ({"category": "memcpy", "bytes": 64}, "bytes=64,"),
        (
            {"signature": "aten::linear([4,8] f32, [2,8] f32, [2] f32)"},
            "[4,8]f32;[2,8]f32;[2]f32,",
        ),
        ({"signature": "aten::reshape([4,8] bf16, (32, -1))"}, "[4,8]bf16;(32,-1),"),
        ({"signature": "aten::index_select([4,8] f32, 0, [3] i64)"}, "[4,8]f32;0;[3]i64,"),
        ({"signature": "aten::cat(([4] f32, [4] f32), 0)"}, "([4]f32,[4]f32);0,"),
        ({"signature": "aten::seed()"}, "na=na,"),
        ({}, "na=na,"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_params_are_numbers_or_a_copys_bytes_or_the_inputs(row: dict[str, Any], words: str) -> None:
    assert values("params", row) == [words]


def test_numbers_are_as_they_are() -> None:
    row = {"dur_ns": 123, "tid": 9, "device": 1, "stream": 7, "flops": 5, "bytes": 6}

    made = [values(key, row) for key in ("sil", "tid", "device", "stream", "flops", "bytes")]

    assert made == [[123], [9], [1], [7], [5], [6]]
    assert values("idx", {}, {}, {}) == [1, 2, 3]
