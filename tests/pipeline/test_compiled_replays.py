"""Replays of CUDA graphs in calls of compiled graphs: their kernels by the code, or not at all.

The oracle is the same recording without replays: in it each launch has its op.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from pyprof2 import load, parse
from pyprof2.analysis.axes import split_owners
from pyprof2.analysis.compiled.replays import launches_replayed
from pyprof2.api import run_profile
from pyprof2.recording import CodeLaunch
from tests.compiled_trace import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

CALL = "## Call CompiledFxGraph "
Events = list[dict[str, Any]]


def replayed(events: Events) -> Events:
    """Return events in which each call of a graph replays a graph of the device."""
    for number, call in enumerate([e for e in events if e.get("name", "").startswith(CALL)]):
        begin, end = call["ts"], call["ts"] + call["dur"]
        inside = [
            e for e in events
            if e.get("ph") == "X" and begin < e["ts"] < end and e["tid"] == call["tid"]
        ]  # fmt: skip
        launched = {
            e["args"]["correlation"] for e in inside if e["cat"] in ("cuda_runtime", "cuda_driver")
        }
        # What comes after a replay on the host is not launched before it.
        one = 900_000 + number
        for event in events:
            if event.get("args", {}).get("correlation") in launched:
                event["args"] |= {"correlation": one, "External id": 0}
        gone = {id(e) for e in inside}
        events = [e for e in events if id(e) not in gone and e.get("cat") != "ac2g"]
        launch = {"cbid": 311, "correlation": one}
        events.append(
            call | {"cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": begin + 1, "dur": 5,
                    "args": launch}
        )  # fmt: skip
    return events


def run_of(folder: Path, change: Callable[[Events], Events]) -> Run:
    """Return the recording of Triton kernels with other events, its log beside it."""
    document = json.loads(gzip.decompress((FOLDER / "h200.json.gz").read_bytes()))
    document["traceEvents"] = change(document["traceEvents"])
    folder.mkdir()
    (folder / "net.json").write_text(json.dumps(document))
    log = gzip.decompress((FOLDER / "h200.log.gz").read_bytes())
    (folder / "dedicated_log_torch_trace_0.log").write_bytes(log)
    return load(parse(folder / "net.json", folder / "net.pyprof2"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replays")


@pytest.fixture(scope="module")
def plain(folder: Path) -> pd.DataFrame:
    """Return the kernels of compiled code where nothing is replayed."""
    rows = run_profile.rows_of(run_of(folder / "plain", lambda events: events).tables)
    return rows[rows["link"] == "compiled"]


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return run_of(folder / "replayed", replayed)


def of_replays(run: Run) -> pd.DataFrame:
    rows = run_profile.rows_of(run.tables)
    return rows[rows["link"].isin(("graph_names", "graph")) & ~rows["kernel"].isna()]


def test_kernels_of_a_replay_have_the_lines_of_the_launches_that_they_are(
    run: Run, plain: pd.DataFrame
) -> None:
    found = of_replays(run)
    assert set(found["link"]) == {"graph_names"}
    assert found["kernel"].tolist() == plain["kernel"].tolist()
    several = 0
    for row, truth in zip(found.to_dict("records"), plain.to_dict("records"), strict=True):
        known = {row["source"], *split_owners(str(row["shared_source"]))}
        lines = {truth["source"]}
        if pd.isna(truth["source"]):
            lines = set(split_owners(str(truth["shared_source"])))
        if str(row["category"]) in ("memset", "memcpy"):
            # Of an op between two names: of which one its name does not say.
            continue
        # One of several launches, or the one that it is.
        assert lines <= known, (row["kernel"], lines, known)
        several += pd.isna(row["flops"]) and pd.notna(truth["flops"])
        # Without nodes work is known by the kernel's name, of a launch that is recorded alone.
        by_nodes = "of the graph's nodes" in str(truth["cost_note"])
        if row["kernel"].startswith("triton_") and by_nodes:
            for name in ("op", "source", "flops", "bytes", "category", "direction"):
                same = row[name] == truth[name] or (pd.isna(row[name]) and pd.isna(truth[name]))
                assert same, (row["kernel"], name, row[name], truth[name])
    assert several < 0.2 * len(found)


def test_a_product_between_two_names_counts_what_its_node_says(
    run: Run, plain: pd.DataFrame
) -> None:
    found, truth = of_replays(run), plain
    products = found[found["category"] == "matmul"]
    assert len(products) > 10
    joined = products.merge(truth, on="kernel_id", suffixes=("", "_true"))
    whole = joined[joined["cost_role_true"] == "main"] if "cost_role_true" in joined else joined
    # Where a call ran two kernels beside another call, which one is which is not known.
    whole = whole[whole["flops"].notna() & ~whole["cost_note"].str.contains("together")]
    assert len(whole) > len(products) / 2
    for name in ("op", "flops"):
        assert whole[name].astype(str).tolist() == whole[f"{name}_true"].astype(str).tolist()


def test_several_kernels_of_one_launch_share_its_flops(run: Run, plain: pd.DataFrame) -> None:
    found, truth = of_replays(run).reset_index(drop=True), plain.reset_index(drop=True)
    known = found["flops"].notna()

    assert found["flops"][known].sum() == truth["flops"][known].sum() > 2e10


def test_kernels_of_several_calls_share_the_work_of_all_of_them(
    run: Run, plain: pd.DataFrame
) -> None:
    found, truth = of_replays(run).reset_index(drop=True), plain.reset_index(drop=True)
    notes = found["cost_note"].astype(str)
    together = notes.str.contains("calls together, shared by time")

    assert together.sum() == 6
    for _, own in found[together].groupby("call_id"):
        assert own["flops"].sum() == truth["flops"][own.index].fillna(0).sum() > 0
    lacks = found[notes.str.match(r"one of \d+ calls: the work of \S.* is not known")]
    assert lacks["flops"].isna().all()


def test_parts_and_sums_are_those_of_all_kernels(run: Run) -> None:
    parts = pd.read_parquet(run.path / "kernel_parts")
    found = of_replays(run)

    assert set(parts["kernel_id"]) <= set(found["kernel_id"])
    for axis in ("source", "layer", "op"):
        sums = run.profile(by=axis, columns=["share_ns"])
        assert (
            sums["time_ns"].sum()
            == run_profile.rows_of(run.tables)["dur_ns"].sum()
            == sums["share_ns"].sum()
        )
    notes = {each["note"] for each in run.tables.manifest["ranks"][0]["graphs"]}
    assert all("launches of the compiled graph's code, by names" in note for note in notes), notes
    assert "compiled" not in run.tables.manifest["ranks"][0] or all(
        each["known"] for each in run.tables.manifest["ranks"][0]["compiled"]
    )


def test_a_replay_that_lacks_a_name_is_not_explained_and_it_is_said(folder: Path) -> None:
    def without(events: Events) -> Events:
        made = replayed(events)
        first = next(e for e in made if e["name"].startswith("triton_poi_fused_gelu"))
        return [e for e in made if e is not first]

    found = of_replays(run_of(folder / "without", without))

    lost = found[found["link"] == "graph"]
    assert len(lost)
    assert lost["link_note"].str.contains("not the code that was noted: triton").all()
    assert lost[["op", "source", "layer"]].isna().all(axis=None)
    assert lost["flops"].fillna(0).sum() == 0


CODE = [CodeLaunch(name) for name in ("aten::mm", "triton_a", "aten::mm", "aten::bmm", "triton_b")]


@pytest.mark.parametrize(
    ("kernels", "places"),
    [
        # As many as calls: one by one.
        (["k", "triton_a", "k", "k", "triton_b"], [(0,), (1,), (2,), (3,), (4,)]),
        # One call ran two kernels: each may be of either.
        (["k", "triton_a", "k", "k", "k", "triton_b"],
         [(0,), (1,), (2, 3), (2, 3), (2, 3), (4,)]),
        # A copy is no kernel; behind the last name nothing is called.
        (["", "k", "triton_a", "k", "k", "triton_b", "k"],
         [(), (0,), (1,), (2,), (3,), (4,), ()]),
        # Copies of inputs come first: which of the kernels they are is not known.
        (["copy", "k", "triton_a", "k", "k", "triton_b"],
         [(0,), (0,), (1,), (2,), (3,), (4,)]),
    ],
)  # fmt: skip
def test_names_of_the_compiler_are_anchors(
    kernels: list[str], places: list[tuple[int, ...]]
) -> None:
    assert launches_replayed(CODE, kernels) == places


@pytest.mark.parametrize(
    ("kernels", "why"),
    [
        (["k", "triton_b", "k", "triton_a"], "triton_b where that has triton_a"),
        (["k", "k", "triton_b"], "whose names are of it alone"),
        (["triton_a", "triton_b", "triton_b"], "triton_b is one more"),
        (["triton_a", "triton_a"], "triton_a where that has triton_b"),
        (["k", "k"], "whose names are of it alone"),
    ],
)
def test_with_other_names_nothing_is_said(kernels: list[str], why: str) -> None:
    found = launches_replayed(CODE, kernels)

    assert isinstance(found, str)
    assert why in found


def test_a_name_that_is_lacking_at_the_end_is_said() -> None:
    code = [*CODE, CodeLaunch("triton_c")]

    found = launches_replayed(code, ["k", "triton_a", "k", "k", "triton_b"])

    assert found == "not the code that was noted: it lacks triton_c"
