"""Real captures and their replays: every kernel has its op, and no damage makes a wrong one."""

from __future__ import annotations

import copy
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd
import pytest

from pyprof2.analysis.assembly.graph_links import GraphLinks
from pyprof2.analysis.assembly.linked import SharedFindings, link_recording
from pyprof2.columns import lookup
from pyprof2.parsers.kineto import read_recordings
from pyprof2.pipeline.captures import CaptureFile, read_templates
from pyprof2.pipeline.parsing import parse
from tests.graph_traces import (
    Replay,
    activities,
    captured_launches,
    forget_names,
    graphify,
    ops_around,
    read_document,
    write_document,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyprof2.analysis.graphs.nodes import Templates

PAIRS: Final = {
    "sglang": ("sglang_dec_capture", "tl_sglang_dec"),
    "vllm": ("vllm_dec_capture", "tl_vllm_dec"),
}
_TEXTS: Final = ("op", "layer", "source", "direction", "signature", "params")


class Pair(NamedTuple):
    """A capture and its replay, as documents; what the capture says, and the same without names."""

    capture: dict[str, Any]
    replay: dict[str, Any]
    templates: list[Templates]
    nameless: list[Templates]


def templates_of(path: Path, folder: Path) -> list[Templates]:
    found = read_templates(CaptureFile(path), folder, None)
    assert isinstance(found, list)
    return found


@pytest.fixture(scope="module")
def pairs(shared: Path) -> dict[str, Pair]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (capture, replay) in PAIRS.items():
            path = shared / "traces" / "graphs" / f"{capture}.json.gz"
            document = read_document(path)
            erased = write_document(forget_names(document), Path(folder, f"{capture}.json"))
            found[name] = Pair(
                document,
                read_document(shared / "traces" / "kineto" / f"{replay}.json.gz"),
                templates_of(path, Path(folder)),
                templates_of(erased, Path(folder)),
            )
    return found


def explained(replay: Replay, templates: list[Templates], folder: Path) -> pd.DataFrame:
    """Return what is found of the kernels of the replay, in order of time, and their truth."""
    path = write_document(replay.document, folder / "replay.json")
    (recording,) = read_recordings(path, Path(tempfile.mkdtemp(dir=folder)))
    graphs = GraphLinks(recording, templates, 0)
    linked = link_recording(recording, None, SharedFindings(recording, graphs))
    found = linked.activities
    rows = np.flatnonzero((found.launch >= 0) & linked.launches.is_graph[found.launch])
    node = found.node[rows]
    columns: dict[str, Any] = {
        "place": np.where(node >= 0, lookup(graphs.numbers("node"), node, -1), -1)
    }
    for name in _TEXTS:
        codes, words = graphs.text(name, node)
        columns[name] = [None if code < 0 else words[code] for code in codes.tolist()]
    notes = list(graphs.notes)
    columns["note"] = [notes[code] for code in found.replay_note[rows].tolist()]
    columns["flops"] = lookup(graphs.numbers("flops"), node, -1)
    return pd.DataFrame(columns).assign(truth=replay.truth())


def wrong(found: pd.DataFrame, whole: pd.DataFrame) -> int:
    """Return how many values are given that are not those of the node that the kernel is."""
    count = 0
    for name in _TEXTS:
        truth = [None if at < 0 else whole[name].iloc[at] for at in found["truth"]]
        pairs = zip(found[name], truth, strict=True)
        count += sum(not pd.isna(given) and given != known for given, known in pairs)
    return count


@pytest.mark.minutes
@pytest.mark.parametrize("name", PAIRS)
def test_every_kernel_of_a_replay_has_the_op_of_its_captured_launch(
    pairs: dict[str, Pair], name: str, tmp_path: Path
) -> None:
    pair = pairs[name]
    launches = captured_launches(pair.capture)

    found = explained(Replay.of(pair.replay), pair.templates, tmp_path)

    assert found["place"].tolist() == list(range(len(launches)))
    assert found["op"].tolist() == ops_around(pair.capture, launches)
    names = [each["name"].removesuffix(".kd") for each in Replay.of(pair.replay).kernels]
    assert names == [each["args"]["kernel"].removesuffix(".kd") for each in launches]
    assert found["layer"].notna().all()
    assert found["signature"].notna().all()


@pytest.mark.minutes
@pytest.mark.parametrize("name", PAIRS)
def test_without_names_at_capture_the_order_tells(
    pairs: dict[str, Pair], name: str, tmp_path: Path
) -> None:
    pair = pairs[name]
    named = explained(Replay.of(pair.replay), pair.templates, tmp_path)

    found = explained(Replay.of(pair.replay), pair.nameless, tmp_path)

    assert set(found["note"].str.split(":").str[0]) == {
        "order only, names were not recorded at capture"
    }
    assert (found["place"] == named["place"]).all()
    assert found[list(_TEXTS)].equals(named[list(_TEXTS)])


def _moved(replay: Replay, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for one, other in rng.choice(len(replay.kernels), (5, 2), replace=False).tolist():
        replay.swap(one, other)


def _other_library(replay: Replay, _: int) -> None:
    replay.rename(lambda name: name.replace("Cijk_", "Cijk2_").replace("triton_", "triton2_"))


def _replaced(replay: Replay, seed: int) -> None:
    at = seed % len(replay.kernels)
    replay.kernels[at]["name"] = "another_kernel"
    replay.kernels[at]["args"]["truth"] = -1


def _lost_and_added(replay: Replay, seed: int) -> None:
    replay.drop(seed % len(replay.kernels))
    replay.insert((seed * 3) % len(replay.kernels), "another_kernel")


def _on_two_streams(replay: Replay, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for kernel, other in zip(replay.kernels, rng.random(len(replay.kernels)), strict=True):
        kernel["args"]["stream"] = int(other < 0.3)


def _halved(replay: Replay, _: int) -> None:
    for _ in range(len(replay.kernels) // 2):
        replay.drop(0)


DAMAGE: Final[dict[str, Callable[[Replay, int], None]]] = {
    "a node lost": lambda replay, seed: replay.drop(seed % len(replay.kernels)),
    "a node added": lambda replay, seed: replay.insert(
        seed % len(replay.kernels), replay.kernels[(seed * 7) % len(replay.kernels)]["name"]
    ),
    "ten moved": _moved,
    "one replaced": _replaced,
    "one lost, one added": _lost_and_added,
    "other library version": _other_library,
    "on two streams": _on_two_streams,
    "half of it": _halved,
}


@pytest.mark.minutes
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("names", ["names", "no names"])
def test_damage_makes_no_wrong_column(
    pairs: dict[str, Pair], name: str, names: str, damage: str, tmp_path: Path
) -> None:
    pair = pairs[name]
    whole = explained(Replay.of(pair.replay), pair.templates, tmp_path)
    for seed in (1, 100, 257, 419):
        replay = Replay.of(pair.replay)
        DAMAGE[damage](replay, seed)
        templates = pair.templates if names == "names" else pair.nameless

        found = explained(replay, templates, tmp_path)

        assert wrong(found, whole) == 0
        if damage == "a node lost" and names == "names":
            assert found["op"].notna().mean() > 0.99
            assert "lacks 1 node of the graph" in found["note"].iloc[0]


@pytest.mark.minutes
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("at", [0, 100, -1])
def test_a_launch_outside_of_the_graph_makes_no_wrong_column(
    pairs: dict[str, Pair], name: str, at: int, tmp_path: Path
) -> None:
    pair = pairs[name]
    whole = explained(Replay.of(pair.replay), pair.templates, tmp_path)
    for kernel in ("another_kernel", None):
        capture = copy.deepcopy(pair.capture)
        own = captured_launches(capture)[at]
        planted = copy.deepcopy(own) | {"ts": float(own["ts"]) + 0.001}
        planted["args"] |= {"correlation": 10**9, "kernel": kernel or own["args"]["kernel"]}
        capture["traceEvents"].append(planted)
        templates = templates_of(write_document(capture, tmp_path / "capture.json"), tmp_path)

        found = explained(Replay.of(pair.replay), templates, tmp_path)

        assert wrong(found, whole) == 0
        assert found["op"].notna().mean() > 0.99


@pytest.mark.minutes
@pytest.mark.parametrize("name", PAIRS)
def test_another_model_explains_nothing_and_the_reason_is_given(
    pairs: dict[str, Pair], name: str, tmp_path: Path
) -> None:
    (other,) = set(PAIRS) - {name}
    for templates in (pairs[other].templates, pairs[other].nameless):
        found = explained(Replay.of(pairs[name].replay), templates, tmp_path)

        assert found["op"].isna().all()
        assert "no capture has its" in found["note"].iloc[0]


@pytest.mark.minutes
@pytest.mark.parametrize("name", PAIRS)
def test_another_batch_has_ops_and_no_shapes(
    pairs: dict[str, Pair], name: str, tmp_path: Path
) -> None:
    pair = pairs[name]
    whole = explained(Replay.of(pair.replay), pair.templates, tmp_path)
    for templates, batch, has_shapes in (
        (pair.templates, 31, True), (pair.templates, 33, False), (pair.nameless, 64, False),
    ):  # fmt: skip
        replay = Replay.of(pair.replay)
        replay.rename_ranges("execute_32_", f"execute_{batch}_")
        replay.rename_ranges("bs=32", f"bs={batch}")

        found = explained(replay, templates, tmp_path)

        assert (found["op"] == whole["op"]).all()
        assert found["signature"].notna().all() == has_shapes
        assert (found["flops"] >= 0).any() == has_shapes


@pytest.mark.minutes
@pytest.mark.parametrize("name", PAIRS)
def test_a_capture_of_another_rank_is_said_to_be(
    pairs: dict[str, Pair], name: str, shared: Path, tmp_path: Path
) -> None:
    replay = Replay.of(pairs[name].replay)
    replay.document["distributedInfo"]["rank"] = 1
    path = write_document(replay.document, tmp_path / "replay.json")
    capture = shared / "traces" / "graphs" / f"{PAIRS[name][0]}.json.gz"

    kernels = activities(parse(path, tmp_path / "store", captures=[capture]))

    notes = kernels.loc[kernels["graph_node"].notna(), "link_note"].astype(str)
    assert notes.str.endswith("; capture of rank 0").all()


@pytest.mark.minutes
@pytest.mark.parametrize("name", PAIRS)
def test_time_is_kept_and_that_of_each_op_is_the_published_one(
    name: str, shared: Path, tmp_path: Path
) -> None:
    capture, replay = PAIRS[name]
    path = shared / "traces" / "kineto" / f"{replay}.json.gz"
    folder = {"sglang": "sglang_decode", "vllm": "vllm_decode_full"}[name]
    published = pd.read_csv(shared / "reference" / "serving" / folder / "ops_summary.csv")
    without = activities(parse(path, tmp_path / "without", look_for_captures=False))
    captures = [shared / "traces" / "graphs" / f"{capture}.json.gz"]

    kernels = activities(parse(path, tmp_path / "with", captures=captures))

    assert kernels["dur_ns"].tolist() == without["dur_ns"].tolist()
    expected = published.groupby("name")["total_direct_kernel_time_sum"].sum().to_dict()
    # The recorder numbers some ops in their names; those who published did not.
    numbered = kernels["op"].astype(object)
    bare = numbered.str.replace(r"_\d+$", "", regex=True)
    ops = numbered.where(numbered.isin(expected.keys()), bare)
    times = (kernels.groupby(ops)["dur_ns"].sum() / 1e3).to_dict()
    common = times.keys() & expected.keys()
    assert {name: times[name] for name in common} == pytest.approx(
        {name: expected[name] for name in common}, rel=1e-3
    )
    outside = kernels.loc[ops.isna(), "dur_ns"].sum() / 1e3
    left = sum(time for op, time in expected.items() if op not in common)
    assert times.keys() - common == set()
    assert outside == pytest.approx(left, rel=1e-3)


@pytest.mark.minutes
def test_the_editor_shows_time_of_replays_at_functions_that_were_captured(
    pairs: dict[str, Pair], shared: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pygls")
    from tests.lsp.editor import Editor

    capture, replay = PAIRS["sglang"]
    path = shared / "traces" / "kineto" / f"{replay}.json.gz"
    captures = [shared / "traces" / "graphs" / f"{capture}.json.gz"]
    parse(path, tmp_path / "decode.pyprof2", captures=captures)
    launches = captured_launches(pairs["sglang"].capture)
    kernels = Replay.of(pairs["sglang"].replay).kernels
    expected = {}
    for line, function in {263: "attention", 384: "layer", 507: "model"}.items():
        frames = [
            (float(each["ts"]), float(each["ts"]) + float(each["dur"]))
            for each in pairs["sglang"].capture["traceEvents"]
            if each.get("cat") == "python_function" and f"models/qwen3.py({line})" in each["name"]
        ]
        inside = [
            float(kernel["dur"])
            for launch, kernel in zip(launches, kernels, strict=True)
            if any(begin <= float(launch["ts"]) < end for begin, end in frames)
        ]
        expected[line] = f"{function}: {sum(inside) / 1e3:.2f} ms"
    code = tmp_path / "src" / "models" / "qwen3.py"
    code.parent.mkdir(parents=True)
    named = {line: said.partition(":")[0] for line, said in expected.items()}
    lines = ["# above the first function"] * 262 + ["    x = 1"] * 260
    for line, function in named.items():
        lines[line - 1] = f"def {function}(x):"
    code.write_text("\n".join(lines))
    os.utime(code, (1.7e9, 1.7e9))  # it is older than the recording
    there = "/sgl-workspace/sglang/python/sglang/srt"
    mapped = {there: str(tmp_path / "src")}
    editor = Editor("neovim-0.12.4", tmp_path, tmp_path / "state", pathMap=mapped)
    try:
        editor.open(code)
        editor.wait(lambda: len(editor.lenses()) > 1)  # the first is of the recording
        said = dict(editor.lenses())
    finally:
        editor.shut()

    assert {line: said[line].rpartition(",")[0] for line in expected} == expected


EAGER: Final = (
    "hta_df_index_v100_ddp", "hta_diff_control_a100", "hta_mi250_toy", "hta_ns_v100",
    "hta_sampled_r0", "rn50_v100_w0", "tl_resnet_ckpt_mi300",
)  # fmt: skip
"""The eager recordings of several steps."""
ABSTAINS: Final = ("hta_sampled_r0",)
"""Its steps race: threads launch in another order."""
ABSTAINED: Final = {
    "which of the graph's equal nodes it is is not known",
    "no stretch of launches outside of graphs is its N nodes",
}


@pytest.mark.minutes
def test_streams_that_are_merged_make_no_wrong_column(shared: Path, tmp_path: Path) -> None:
    path = shared / "traces" / "kineto" / "hta_diff_control_a100.json.gz"
    document, _ = graphify(read_document(path))
    for each in document["traceEvents"]:
        if each.get("args", {}).get("correlation", 0) >= 10**9 and "stream" in each["args"]:
            each["args"]["stream"] = 7
    truth = activities(parse(path, tmp_path / "eager.pyprof2"))
    replays = write_document(document, tmp_path / "replays.json")

    found = activities(parse(replays, tmp_path / "replays.pyprof2"))

    columns = ["start_ns", "dur_ns", "kernel"]
    found, truth = (each.sort_values(columns, ignore_index=True) for each in (found, truth))
    assert found["start_ns"].tolist() == truth["start_ns"].tolist()
    replayed = found["link"].astype(str).str.startswith("graph")
    for column in ("op", "layer", "source", "direction"):
        given = found.loc[replayed, column].astype(object)
        known = given.notna()
        assert (given[known] == truth.loc[replayed, column].astype(object)[known]).all()


@pytest.mark.minutes
@pytest.mark.parametrize("name", EAGER)
def test_steps_that_become_replays_have_the_ops_of_the_step_before(
    name: str, shared: Path, tmp_path: Path
) -> None:
    path = shared / "traces" / "kineto" / f"{name}.json.gz"
    document, count = graphify(read_document(path))
    if not count:
        pytest.skip("it has one step")
    truth = activities(parse(path, tmp_path / "eager.pyprof2"))

    found = activities(
        parse(write_document(document, tmp_path / "replays.json"), tmp_path / "replays.pyprof2")
    )

    assert found["start_ns"].tolist() == truth["start_ns"].tolist()
    replayed = found["link"].astype(str).str.startswith("graph")
    for column in ("op", "layer", "source", "direction", "params"):
        given = found.loc[replayed, column].astype(object)
        expected = truth.loc[replayed, column].astype(object)
        known = given.notna()
        assert (given[known] == expected[known]).all()
        if column == "op":
            # What is not known says why; streams that do the same are not told apart.
            why = found.loc[replayed, "link_note"].astype(object)[~known & expected.notna()]
            assert set(why.str.replace(r"[\d,]+", "N", regex=True)) <= ABSTAINED
            least = 0 if name in ABSTAINS else 0.975
            assert known.sum() >= least * expected.notna().sum()
    assert found["dur_ns"].sum() == truth["dur_ns"].sum()
