"""A recording of compiled code becomes tables in which its kernels have lines, or say why not."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from pyprof2 import load, parse
from pyprof2.analysis.assembly.compiled_links import find_callers
from pyprof2.analysis.axes import OWNED, shared_text, split_owners
from pyprof2.api import run_profile
from pyprof2.api.comparison import compare
from pyprof2.cli import main
from pyprof2.lsp.costs import VALUES, costs_of
from pyprof2.parsers.compile_notes import _NotedNode, separate_products
from tests.compiled_trace import FOLDER, SOURCE, TRACE, changed
from tests.kineto_events import launched, load_events, op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from pyprof2.api.run import Run

CALLED = "## Call CompiledFxGraph "


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load(parse(TRACE, tmp_path_factory.mktemp("compiled") / "net.pyprof2"))


def calls(run: Run) -> dict[str, int]:
    return {each["note"]: each["calls"] for each in run.tables.manifest["ranks"][0]["compiled"]}


def compiled(run: Run) -> pd.DataFrame:
    rows = run_profile.rows_of(run.tables)
    return rows[rows["link"] == "compiled"]


def lines_of(run: Run) -> set[str]:
    parts = pd.read_parquet(run.path / "kernel_parts")
    return set(parts["source"].dropna().unique())


def test_all_calls_are_found_in_their_code(run: Run) -> None:
    assert calls(run) == {
        "10 of 10 names of the compiled graph's code": 2,
        "17 of 17 names of the compiled graph's code": 2,
    }
    lines = {f"{SOURCE}:{line}" for line in (16, 17, 18, 19, 31)}
    assert lines_of(run) == lines


def test_the_nodes_of_an_op_call_are_read_back_though_there_is_no_kernel(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    number = compiled(run)["kernel_id"].iloc[-1]

    assert main(["explain", str(run.path), f"kernel:{number}"]) == 0
    assert "generated code" in capsys.readouterr().out


def test_a_kernel_of_one_line_has_it_and_its_layer_and_op(run: Run) -> None:
    rows = compiled(run)
    gelu = rows[rows["kernel"].str.endswith("cpp_fused_gelu_1")]

    assert gelu["source"].tolist() == [f"{SOURCE}:18"] * 4
    assert gelu["layer"].tolist() == ["blocks.0", "blocks.1"] * 2
    assert gelu["op"].tolist() == ["aten::gelu"] * 4
    assert gelu["direction"].tolist() == ["forward"] * 4


def test_a_kernel_of_several_lines_has_none_and_all_of_them_in_its_parts(run: Run) -> None:
    rows = compiled(run)
    own = rows[rows["kernel"].str.contains("cpp_fused_add_native_layer_norm_2")].iloc[0]
    parts = pd.read_parquet(run.path / "kernel_parts")
    parts = parts[parts["kernel_id"] == own["kernel_id"]]

    assert own[["op", "layer", "source"]].isna().all()
    assert set(parts["source"]) == {f"{SOURCE}:16", f"{SOURCE}:19"}
    assert set(parts["layer"]) == {"blocks.0", "blocks.1.norm"}
    assert set(parts["op"]) == {"aten::add", "aten::native_layer_norm"}


def test_forward_nodes_that_backward_runs_again_are_recomputed(run: Run) -> None:
    parts = pd.read_parquet(run.path / "kernel_parts")
    again = parts[parts["recompute"].astype(bool)]

    assert set(again["direction"]) == {"forward"}
    assert {"aten::gelu"} <= set(again["op"].astype(str))


@pytest.mark.parametrize("axis", ["source", "layer", "op"])
def test_times_add_up_and_those_of_several_are_a_row_of_their_own(run: Run, axis: str) -> None:
    rows = run_profile.rows_of(run.tables)
    found = run.profile(by=axis).set_index(axis)

    assert found["time_ns"].sum() == rows["dur_ns"].sum()
    assert found["share_pct"].sum() == pytest.approx(100)
    several = rows[rows[f"shared_{axis}"].notna()]
    shared = found[found.index.str.startswith("(shared: ")]
    assert shared["time_ns"].sum() == several["dur_ns"].sum() > 0
    assert shared[["alone_ns", "shared_ns"]].isna().all(axis=None)
    others = found.drop(shared.index)
    assert (others["alone_ns"] == others["time_ns"]).all()
    expected: Counter[str] = Counter()
    for owners, time in zip(several[f"shared_{axis}"], several["dur_ns"], strict=True):
        for owner in split_owners(str(owners)):
            expected[owner] += time
    assert {k: v for k, v in others["shared_ns"].items() if v} == expected


def test_fused_kernels_have_the_work_of_their_nodes(run: Run) -> None:
    rows = compiled(run)
    # 64 rows of 64 numbers: two products with a number, the error function, a sum, a product.
    gelu = rows[rows["kernel"].str.endswith("cpp_fused_gelu_1")]
    assert gelu["flops"].tolist() == [5 * 64 * 64] * 4
    assert gelu["bytes"].tolist() == [2 * 4 * 64 * 64] * 4
    # Mean and variance of 64 rows of 32 numbers take 4 for each, the rest of the norm as much; the
    # two numbers of a row are sums and a root that are updated in their places.
    norm = rows[rows["kernel"].str.endswith("cpp_fused_native_layer_norm_0")]
    assert norm["flops"].tolist() == [8 * 64 * 32 + 2 * 64] * 2
    assert norm["bytes"].tolist() == [4 * (2 * 64 * 32 + 2 * 32 + 4 * 64)] * 2
    assert set(rows["cost_status"]) == {"ok", "assumed", "in_parent"}


def test_the_work_of_parts_is_that_of_their_kernel(run: Run) -> None:
    rows = compiled(run)
    fused = rows[rows["kernel"].str.contains("cpp_fused")].set_index("kernel_id")
    parts = pd.read_parquet(run.path / "kernel_parts")
    own = parts[parts["kernel_id"].isin(fused.index)]

    assert own.groupby("kernel_id")["flops"].sum().to_dict() == fused["flops"].to_dict()
    assert parts[~parts["kernel_id"].isin(fused.index)]["flops"].isna().all()


@pytest.mark.parametrize("axis", ["source", "layer", "op"])
def test_shares_are_by_bytes_and_add_up(run: Run, axis: str) -> None:
    rows = run_profile.rows_of(run.tables)
    found = run.profile(by=axis, columns=["share_ns"])

    assert found["share_ns"].sum() == rows["dur_ns"].sum()
    assert found["share_ns"].is_monotonic_decreasing
    exact: Counter[str] = Counter()
    parts = pd.read_parquet(run.path / "kernel_parts").dropna(subset=[axis])
    for row in rows.to_dict("records"):
        if pd.isna(row[f"shared_{axis}"]):
            exact["(none)" if pd.isna(row[axis]) else row[axis]] += row["dur_ns"]
            continue
        own = parts[parts["kernel_id"] == row["kernel_id"]]
        for owner, size in zip(own[axis].astype(str), own["bytes"], strict=True):
            exact[owner] += row["dur_ns"] * size / own["bytes"].sum()
    given = dict(zip(found[axis], found["share_ns"], strict=True))
    assert {name: pytest.approx(time, abs=10) for name, time in exact.items()} == {
        name: time for name, time in given.items() if time
    }


def test_a_kernel_of_several_layers_is_selected_by_each_of_them(run: Run) -> None:
    rows = compiled(run)
    several = rows[rows["kernel"].str.contains("cpp_fused_add_native_layer_norm_2")]

    for layer in ("^blocks.1.norm$", "^blocks.0$"):
        found = run.profile(by="kernel", layer=layer)
        assert set(several["kernel_id"]) <= set(found["kernel_id"])
        sums = run.profile(by="name", layer=layer)
        assert sums["time_ns"].sum() == found["dur_ns"].sum()
    assert set(several["kernel_id"]).isdisjoint(run.profile(by="kernel", layer="up")["kernel_id"])


@pytest.mark.parametrize("options", [[], ["--sort", "dur_ns"]], ids=["first rows", "all rows"])
def test_a_kernel_of_several_names_them_in_its_row(
    run: Run, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["prof", str(run.path), "--by", "kernel", "-c", "kernel_id,op,layer,source", *options]
    parts = pd.read_parquet(run.path / "kernel_parts")
    shown = {}

    for form in ("markdown", "csv"):
        assert main([*words, "--top", "1000", "--format", form]) == 0
        text = capsys.readouterr().out.replace(f"{SOURCE}:", "train.py:").replace("\\", "")
        shown[form] = re.findall(r"\(shared: [^()]*\)", text)
        assert Counter(shown[form]) == Counter(
            f"(shared: {', '.join(names)})"
            for axis in OWNED
            for _, own in parts.groupby("kernel_id")[axis]
            if len(names := in_words(own.dropna().unique())) > 1
        )
    assert "(shared: train.py:16, 19)" in shown["csv"]


def in_words(owners: Iterable[str]) -> list[str]:
    """Return owners as a row names them, the lines of the one file by number."""
    lines = sorted(int(each.rpartition(":")[2]) for each in owners if each.startswith(SOURCE))
    if lines:
        return [f"train.py:{lines[0]}", *map(str, lines[1:])]
    return sorted(owners)


def test_layers_that_are_one_at_a_depth_are_no_set(run: Run) -> None:
    found = run.profile(by="layer", depth=1)

    assert not found["layer"].str.startswith("(shared: ").any()


def test_the_nodes_of_op_calls_are_those_of_the_rows_of_the_profile(run: Run) -> None:
    parts = pd.read_parquet(run.path / "kernel_parts")

    assert set(parts["kernel_id"]) == set(compiled(run)["kernel_id"])


def test_without_a_launch_a_call_is_not_joined_and_the_name_is_said(tmp_path: Path) -> None:
    def without_first_gelu(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        first = next(e for e in events if e.get("name", "").endswith("cpp_fused_gelu_1"))
        return [event for event in events if event is not first]

    run = load(changed(tmp_path / "net.json", without_first_gelu))

    assert calls(run) == {
        "10 of 10 names of the compiled graph's code": 1,
        "17 of 17 names of the compiled graph's code": 2,
        "not the code that was noted: aten::addmm where that has cpp_fused_gelu_1": 1,
    }
    rows = run_profile.rows_of(run.tables)
    abstained = rows[rows["link_note"].astype(str).str.startswith("not the code")]
    assert len(abstained)
    assert abstained[["layer", "source"]].isna().all(axis=None)


def test_of_two_graphs_with_one_key_the_region_around_decides(tmp_path: Path) -> None:
    def same_key(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [each | {"key": "same"} for each in found]

    def called(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for event in events:
            if event.get("name", "").startswith(CALLED):
                event["name"] = f"{CALLED}same ##"
        return events

    run = load(changed(tmp_path / "net.json", called, same_key))
    assert set(calls(run)) == {
        "10 of 10 names of the compiled graph's code",
        "17 of 17 names of the compiled graph's code",
    }

    def without_regions(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = [e for e in called(events) if "Torch-Compiled Region" not in e.get("name", "")]
        return [e for e in kept if e.get("name") != "CompiledFunction"]

    run = load(changed(tmp_path / "other.json", without_regions, same_key))
    assert list(calls(run)) == [
        "several graphs that were compiled have the key of the one that is called"
    ]


def test_numbers_of_kernels_say_nothing_of_their_order(tmp_path: Path) -> None:
    """On a GPU kernels are numbered as code is made for them, not as they run."""

    def shuffled(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for note in found:
            numbers = [name.rpartition(":")[2] for name in note["kernels"]]
            new = dict(zip(numbers, reversed(numbers), strict=True))
            note["kernels"] = {
                f"{name.rpartition(':')[0]}:{new[name.rpartition(':')[2]]}": nodes
                for name, nodes in note["kernels"].items()
            }
            lines = note["code"].split("\n")
            for at, line in enumerate(lines):
                if "[Provenance debug handles]" in line:
                    before, _, number = line.rpartition(":")
                    lines[at] = f"{before}:{new[number]}"
            note["code"] = "\n".join(lines)
        return found

    run = load(changed(tmp_path / "net.json", of_notes=shuffled))
    columns = ["kernel", "op", "layer", "source", "shared_source"]

    pd.testing.assert_frame_equal(compiled(run)[columns], compiled(load(TRACE))[columns])


@pytest.mark.parametrize("damage", ["not base64!", "AAAA", ""])
def test_damaged_notes_are_a_problem_and_no_error(tmp_path: Path, damage: str) -> None:

    from pyprof2.markers import COMPILED_KEY
    from tests.compiled_trace import trace

    document = trace() | {COMPILED_KEY: damage}
    path = tmp_path / "net.json"
    path.write_text(json.dumps(document))
    run = load(path)

    assert run.tables.manifest["ranks"][0]["problems"]["compile-notes"] == 1
    assert run.check()["finding"].str.contains("notes of compiled graphs").any()


def test_check_says_how_many_calls_have_lines_and_how_to_note_graphs(tmp_path: Path) -> None:

    from pyprof2.markers import COMPILED_KEY
    from tests.compiled_trace import trace

    found = load(TRACE).check()
    assert found["finding"].str.contains("found in their code").any()

    document = trace()
    del document[COMPILED_KEY]
    path = tmp_path / "net.json"
    path.write_text(json.dumps(document))
    lacks = load(path).check()
    own = lacks[lacks["finding"].str.contains("compiled graphs without lines")]
    assert own["count"].tolist() == [4]
    assert own["advice"].str.contains("pyprof2 capture").all()


def printed(note: dict[str, Any]) -> str:
    """Return the graph of a note as the compiler prints it."""
    lines = ["class GraphModule(torch.nn.Module):", "    def forward(self):"]
    for node in note["nodes"]:
        if node["kind"] != "call_function":
            continue
        frames = node.get("frames")
        if frames:
            path, line, name, code = frames[0]
            lines.append(f"        # File: {path}:{line} in {name}, code: {code}")
        else:
            lines.append("        # No stacktrace found for following nodes")
        given = ", ".join(node.get("inputs", ()))
        lines.append(f'        {node["name"]}: "f32[]" = torch.ops.{node["target"]}({given})')
    return "\n".join(lines)


@pytest.mark.parametrize("copies", [1, 2])
def test_folders_of_the_compiler_beside_a_recording_say_its_lines(
    tmp_path: Path, copies: int
) -> None:

    from pyprof2.markers import COMPILED_KEY
    from tests.compiled_trace import notes, trace

    document = trace()
    for at, note in enumerate(notes(document) * copies):
        name = f"model__{at}_{'backward' if note['backward'] else 'forward'}_1.{at}"
        folder = tmp_path / "torch_compile_debug" / "run_1" / "torchinductor" / name
        folder.mkdir(parents=True)
        # The second of two that are alike is of another line.
        text = printed(note).replace("train.py:18", f"train.py:{17 + max(1, at)}")
        (folder / "fx_graph_transformed.py").write_text(text)
        (folder / "output_code.py").write_text(note["code"])
        maps = {"cppCodeToPost": note["kernels"]}
        (folder / "inductor_provenance_tracking_node_mappings.json").write_text(json.dumps(maps))
    del document[COMPILED_KEY]
    (tmp_path / "net.json").write_text(json.dumps(document))
    run = load(parse(tmp_path / "net.json", tmp_path / "net.pyprof2"))

    known = {
        "10 of 10 names of the compiled graph's code": 2,
        "17 of 17 names of the compiled graph's code": 2,
    }
    several = "several graphs that were compiled have the key of the one that is called"
    assert calls(run) == (known if copies == 1 else {several: 4})
    gelu = run_profile.rows_of(run.tables).query("kernel.str.endswith('cpp_fused_gelu_1')")
    assert gelu["source"].dropna().tolist() == ([f"{SOURCE}:18"] * 4 if copies == 1 else [])


BREAK = """Graph break in user code at /net/train.py:41
Graph Break Reason: Encountered graph break when attempting to trace CALL:

Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`
  Hint: Avoid calling it
"""
EVENTS = [
    ("graph break", "/net/train.py:41", BREAK),
    ("graph break", "/net/train.py:41", BREAK),
    ("recompilation", "/net/train.py:9", "0/0: tensor 'x' size mismatch at index 0"),
]
SAID = (
    "Failed to trace builtin operator: Dynamo does not know how to trace builtin operator `print`"
)


def test_breaks_of_graphs_and_recompilations_are_advice_with_their_reasons(tmp_path: Path) -> None:

    from pyprof2.markers import COMPILED_KEY
    from tests.compiled_trace import encoded, notes, trace

    document = trace()
    path = tmp_path / "net.json"
    path.write_text(json.dumps(document | {COMPILED_KEY: encoded(notes(document), events=EVENTS)}))
    run = load(path)

    assert run.tables.manifest["ranks"][0]["compile_events"] == [
        {"kind": "graph break", "place": "/net/train.py:41", "reason": SAID, "count": 2},
        {"kind": "recompilation", "place": "/net/train.py:9",
         "reason": "0/0: tensor 'x' size mismatch at index 0", "count": 1},
    ]  # fmt: skip
    advice = run.advise().set_index("rule")
    assert advice.loc["graph-breaks", "finding"] == f"2 graph breaks, /net/train.py:41: {SAID}"
    assert advice.loc["graph-breaks", "source"] == "/net/train.py:41"
    again = str(advice.loc["recompilation", "finding"])
    assert "1 function was compiled again, /net/train.py:9" in again
    assert load(TRACE).advise().set_index("rule").loc["graph-breaks", "status"] == "silent"


def test_a_log_says_why_graphs_break_and_are_compiled_again(tmp_path: Path) -> None:
    from pyprof2.parsers.torch_trace import read_log
    from tests.parsers.test_torch_trace import artifact, log_of, record

    path = tmp_path / "dedicated_log_torch_trace_0.log"
    metrics = {"recompile_reason": "0/0: size", "co_filename": "/net/t.py", "co_firstlineno": 9}
    path.write_text(
        log_of("miss")
        + artifact("dynamo_graph_break_reason", BREAK)
        + record({"compilation_metrics": metrics})
        + record({"compilation_metrics": metrics | {"recompile_reason": None}})
    )

    assert read_log(path).events == [
        (None, ("graph break", "/net/train.py:41", SAID)),
        (None, ("recompilation", "/net/t.py:9", "0/0: size")),
    ]


@pytest.fixture(scope="module")
def h200(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A recording of Triton kernels, with the log of their compilation beside it."""
    folder = tmp_path_factory.mktemp("h200")
    (folder / "net.json.gz").write_bytes((FOLDER / "h200.json.gz").read_bytes())
    log = gzip.decompress((FOLDER / "h200.log.gz").read_bytes())
    (folder / "dedicated_log_torch_trace_0.log").write_bytes(log)
    return load(parse(folder / "net.json.gz", folder / "net.pyprof2"))


def test_calls_of_triton_kernels_are_found_in_the_code_of_the_log(h200: Run) -> None:
    assert calls(h200) == {
        "36 of 36 names of the compiled graph's code": 2,
        "57 of 57 names of the compiled graph's code": 2,
    }
    rows = compiled(h200)
    has_line = rows["source"].notna() | rows["shared_source"].notna()
    assert rows["dur_ns"][has_line].sum() == rows["dur_ns"].sum()
    text = (FOLDER / "h200.txt").read_text().split("\n")
    for row in rows[rows["kernel"].str.startswith("triton_")].to_dict("records"):
        owners = row["source"] if pd.notna(row["source"]) else row["shared_source"]
        code = " ".join(
            text[int(line.rpartition(":")[2]) - 1] for line in split_owners(str(owners))
        )
        name = row["kernel"]
        if row["op"] == "aten::sum":
            # Named after all that is listed: it sums what the kernel before left of it.
            continue
        assert ("gelu" not in name) or ("gelu" in code), (name, code)
        assert ("layer_norm" not in name) or ("norm" in code), (name, code)


FUSED = "kernels of compiled code that do the work of several ops"


def test_fused_kernels_are_not_said_to_be_outside_of_any_op(h200: Run) -> None:
    rows = run_profile.rows_of(h200.tables)
    fused = rows[(rows["link"] == "compiled") & rows["op"].isna()]
    found = h200.check().set_index("finding")["count"].to_dict()

    assert h200.summary["fused_count"] == len(fused) > 0
    assert h200.summary["fused_count"] == found.get(FUSED)
    assert "kernels launched outside of any op" not in found


def test_the_log_of_the_compiler_makes_no_kernel_less_linked(h200: Run, tmp_path: Path) -> None:
    """One with several ops is linked to all; of one whose ops are unknown the name stays."""
    (tmp_path / "net.json.gz").write_bytes((FOLDER / "h200.json.gz").read_bytes())
    without = load(parse(tmp_path / "net.json.gz", tmp_path / "net.pyprof2"))
    rows, before = run_profile.rows_of(h200.tables), run_profile.rows_of(without.tables)
    known = rows["op"].notna() | rows["shared_op"].notna()

    assert h200.summary["linked_pct"] == without.summary["linked_pct"] == 100
    assert (known >= before["op"].notna()).all()
    assert "(none)" not in set(h200.profile(by="op")["op"])
    named = rows[rows["op"].astype(str).str.startswith("triton_")]
    assert 0 < len(named) < (before["op"].astype(str).str.startswith("triton_")).sum()


def test_a_kernel_without_op_or_set_of_ops_is_not_linked(tmp_path: Path) -> None:
    lone = launched(100, 7, at=120, dur=50)
    run = load_events(tmp_path, op("aten::mm", 0, 9), *launched(2, 1, at=20, dur=50), *lone)

    assert (run.summary["linked_pct"], run.summary["linked_count"]) == (50, 1)
    found = run.check().set_index("finding")["count"]
    assert found["kernels launched outside of any op"] == 1


@pytest.mark.parametrize(
    "words",
    ["prof", "prof --by op,layer", "prof --by source --csv", "prof --by kernel --format json",
     "advise", "lines", "idle", "check", "prof --by op --format markdown"],
)  # fmt: skip
def test_no_screen_has_the_character_between_owners(
    words: str, run: Run, h200: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *options = words.split()
    for path in (run.path, h200.path, FOLDER / "sums.json.gz"):
        assert main([command, str(path), *options]) == 0
        said = capsys.readouterr().out
        assert [c for c in said if ord(c) < ord(" ") and c != "\n"] == []
        assert "\\u001f" not in said


def test_a_product_and_the_sum_after_it_have_two_owners() -> None:
    run = load(FOLDER / "sums.json.gz")
    rows = compiled(run)
    fused = rows[(rows["kernel"] == "aten::addmm") & (rows["direction"] == "forward")]
    parts = pd.read_parquet(run.path / "kernel_parts")
    found = [
        [tuple(each) for each in own[["op", "source", "layer"]].astype(str).to_numpy()]
        for _, own in parts[parts["kernel_id"].isin(fused["kernel_id"])].groupby("kernel_id")
    ]

    source = "/tmp/c/n12/train.py"  # noqa: S108 -- as recorded
    assert found == [
        [("aten::mm", f"{source}:8", f"{block}.b"), ("aten::add", f"{source}:9", block)]
        for block in ("one", "two") * 2
    ]
    assert fused[["source", "layer", "shared_op"]].isna().all(axis=None)
    assert set(fused["op"]) == {"aten::addmm"}
    assert set(fused["flops"]) == {2 * 64 * 32 * 32}


HERE, THERE = [("/t.py", 9, "f", "")], [("/t.py", 8, "f", "")]


@pytest.mark.parametrize(
    ("view", "frames", "layer", "is_separate"),
    [
        ("aten.permute.default", THERE, "net.b", True),
        ("aten.permute.default", HERE, "net.b", True),  # one line, two layers
        ("aten.permute.default", THERE, "net", True),
        ("aten.permute.default", HERE, "net", False),
        ("aten.relu.default", THERE, "net.b", False),  # what is multiplied is no view of it
        ("aten.permute.default", [], "net.b", False),
    ],
)
@pytest.mark.parametrize("original", ["aten.add.Tensor", "aten.addmm.default"])
def test_a_product_is_separate_where_its_weight_says_another_place(
    view: str, frames: list[Any], layer: str, *, is_separate: bool, original: str
) -> None:
    kind = "call_function"
    weight = _NotedNode("w", kind, view, frames=frames, layer=(layer, "net", False))
    both = _NotedNode("s", kind, "aten.addmm.default", original, ["x", "y", "w"], HERE)
    both.layer = ("net", "net", False)
    nodes = [weight, both]
    separate_products(nodes)

    new = [(each.name, each.frames, each.layer) for each in nodes[2:]]
    wanted = is_separate and original == "aten.add.Tensor"
    assert new == ([("s, its product", frames, weight.layer)] if wanted else [])


SHARED = "which of the modules that share this code is called is not known"


def test_of_modules_that_share_code_none_is_named_without_evidence() -> None:
    """Three blocks, compiled in their places: what is open is the net that calls them."""
    run = load(FOLDER / "blocks.json.gz")
    rows = compiled(run)
    products = rows[rows["category"] == "matmul"]

    assert products["flops"].sum() == 3 * 2 * 3 * 2 * (2 * 64 * 32 * 128)
    assert rows[["layer", "shared_layer"]].isna().all(axis=None)
    assert rows["link_note"].str.contains(SHARED).all()
    assert set(run_profile.rows_of(run.tables)["layer"].dropna()) == {"Net", "embed", "head"}


def test_of_code_that_a_module_calls_once_the_layers_are_those_it_was_compiled_for(
    tmp_path: Path,
) -> None:
    def inside(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for note in found:
            note["layer"] = ["body", "net", False]
            for each in note["nodes"]:
                if each.get("layer"):
                    each["layer"] = [f"body.{each['layer'][0]}", "net", False]
        return found

    run = load(changed(tmp_path / "net.json", of_notes=inside))
    layers = set(pd.read_parquet(run.path / "kernel_parts")["layer"].dropna())

    assert {"body.blocks.0", "body.blocks.1.norm"} <= layers
    assert {each.partition(".")[0] for each in layers} == {"body"}
    assert not compiled(run)["link_note"].str.contains(SHARED).any()


@pytest.mark.parametrize(
    ("opened", "held", "found"),
    [
        (["Net"] * 4, [1, 1, 2, 2], {"b.0": True}),
        (["Net"] * 4, [1, 2, 3, 4], {"b.0": False}),
        (["b.0", "b.1"] * 2, [1, 1, 2, 2], {}),
        (["b.0"] * 4, [1, 1, 1, 1], {}),
        ([None] * 4, [-1] * 4, {}),
    ],
)
def test_layers_around_calls_name_modules_or_their_callers(
    opened: list[str | None], held: list[int], found: dict[str, bool]
) -> None:
    texts = ["Net", "b.0", "b.1"]
    codes = np.array([-1 if each is None else texts.index(each) for each in opened])
    linked: Any = SimpleNamespace(layer=(codes, texts))
    calls: Any = SimpleNamespace(
        first=np.arange(4), made=np.arange(4), length=np.ones(4, int), held=np.array(held)
    )
    graph: Any = SimpleNamespace(layer="b.0", is_backward=False)

    assert find_callers(linked, calls, [graph] * 4) == found


def test_flops_of_lines_on_a_gpu_are_those_of_the_model(h200: Run) -> None:
    rows = run_profile.rows_of(h200.tables)
    rows = rows[rows["category"] == "matmul"]
    text = (FOLDER / "h200.txt").read_text().split("\n")
    found = rows.groupby(["direction", "source"], observed=True)["flops"].sum()
    sizes = {"qkv": (256, 768), "s.out": (256, 256), "s.up": (256, 1024), "s.down": (1024, 256)}
    for name, (k, n) in sizes.items():
        (number,) = [
            at
            for at, line in enumerate(text, 1)
            if f"{name}(" in line and "=" not in line.split(name)[1][:3] and "Linear" not in line
        ]
        line = f"/tmp/t.py:{number}"  # noqa: S108 -- as recorded
        once = 2 * 8 * 128 * k * n
        # Two blocks, two steps; backward has a product for the input and one for the weight.
        assert found["forward", line] == 2 * 2 * once
        assert found["backward", line] == 2 * 2 * 2 * once


def test_triton_kernels_have_the_work_of_their_nodes(h200: Run) -> None:
    rows = compiled(h200)
    fused = rows[rows["kernel"].str.startswith("triton_")].set_index("kernel")
    # Batches of 8 with 128 rows; 256 numbers wide, 1024 between the two layers of a block.
    n, wide = 8 * 128 * 256, 8 * 128 * 1024

    def one(name: str) -> tuple[int, int]:
        (found,) = set(zip(fused.loc[[name], "flops"], fused.loc[[name], "bytes"], strict=True))
        return found

    assert one("triton_poi_fused_gelu_view_8") == (5 * wide, 2 * 2 * wide)
    norm = (8 * n + 2 * 1024, 4 * n + 2 * n + 2 * 4 * 256 + 3 * 4 * 1024)
    assert one("triton_per_fused__to_copy_native_layer_norm_0") == norm
    # The gradient of a bias is summed in two kernels, over 128 rows and over the 8 that these left.
    assert one("triton_red_fused_sum_4") == (n, 2 * n + 4 * 8 * 256)
    assert one("triton_per_fused_sum_7") == (8 * 256, 4 * 8 * 256 + 4 * 256)
    assert one("triton_per_fused_gelu_gelu_backward_sum_view_9")[0] == 8 * 1024
    # The log says of a kernel that starts at several places which lines it is for, not which nodes.
    assert fused["cost_note"].str.contains("an estimate|from the kernel's name").all()
    assert not (fused["roofline_pct"] > 100).any()


def test_of_a_call_that_is_not_joined_only_products_with_recorded_shapes_count(
    h200: Run, tmp_path: Path
) -> None:
    """The name of a fused kernel lists what it may compute: `gelu` once, which is five."""
    document = json.loads(gzip.decompress((FOLDER / "h200.json.gz").read_bytes()))
    events = document["traceEvents"]
    lost = next(each for each in events if each["name"] == "triton_poi_fused_gelu_view_8")
    events.remove(lost)
    (tmp_path / "net.json").write_text(json.dumps(document))
    log = gzip.decompress((FOLDER / "h200.log.gz").read_bytes())
    (tmp_path / "dedicated_log_torch_trace_0.log").write_bytes(log)
    run = load(parse(tmp_path / "net.json", tmp_path / "net.pyprof2"))

    awaited = "triton_poi_fused_gelu_view_8"
    note = f"not the code that was noted: triton_poi_fused__to_copy_6 where that has {awaited}"
    assert calls(run)[note] == 1
    found, truth = run_profile.rows_of(run.tables), run_profile.rows_of(h200.tables)
    assert found["kernel"].tolist() == truth["kernel"].tolist()
    own = found["link_note"] == note
    fused = own & found["kernel"].str.startswith("triton_")
    lacks = found[fused]
    assert len(lacks) > 10
    assert lacks[["flops", "bytes", "flops_hi", "source", "layer"]].isna().all(axis=None)
    assert set(lacks["cost_status"]) == {"no_formula"}
    assert set(lacks["cost_note"]) == {note}
    # All others count as before, but the one without an op.
    (without_op,) = truth.index[(found["flops"].isna() & truth["flops"].notna()) & ~fused]
    assert truth["kernel"][without_op] == awaited
    kept = ~fused & (truth.index != without_op)
    assert found["flops"][kept].tolist() == truth["flops"][kept].tolist()
    assert found["flops"][own & kept].sum() > 0


@pytest.mark.parametrize("axis", ["source", "layer", "op"])
def test_times_on_a_gpu_add_up(h200: Run, axis: str) -> None:
    rows = run_profile.rows_of(h200.tables)
    found = h200.profile(by=axis)

    assert found["time_ns"].sum() == rows["dur_ns"].sum()
    parts = pd.read_parquet(h200.path / "kernel_parts")
    assert set(parts["kernel_id"]) == set(compiled(h200)["kernel_id"])


def test_a_comparison_names_all_lines_of_a_kernel_that_became_slower(
    h200: Run, tmp_path: Path
) -> None:
    """Its parts by line add up to what was added to the kernels of each."""
    document = json.loads(gzip.decompress((FOLDER / "h200.json.gz").read_bytes()))
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel" and "layer_norm" in event["name"]:
            event["dur"] += 1.5
    (tmp_path / "net.json").write_text(json.dumps(document))
    log = gzip.decompress((FOLDER / "h200.log.gz").read_bytes())
    (tmp_path / "dedicated_log_torch_trace_0.log").write_bytes(log)
    slower = load(parse(tmp_path / "net.json", tmp_path / "net.pyprof2"))

    found = compare(h200, slower, by=["source"])

    rows = run_profile.rows_of(h200.tables)
    own = rows[rows["kernel"].astype(str).str.contains("layer_norm")]
    expected: Counter[str] = Counter()
    for row in own.to_dict("records"):
        several = pd.notna(row["shared_source"])
        names = split_owners(str(row["shared_source" if several else "source"]))
        expected[shared_text(names) if several else names[0]] += 1500
    parts = found.comparison.details.groupby("source")["delta_ns"].sum()
    assert {name: int(delta) for name, delta in parts.items() if delta} == expected
    assert "(shared: /tmp/t.py:9, 10)" in expected


def test_the_editor_has_times_of_a_line_alone_and_no_line_of_several(run: Run) -> None:
    costs = costs_of(run.path, None)

    places = {*costs["layers"], *costs["layers"].values()}
    assert not any("(shared: " in each for each in places)
    (own,) = costs["files"].values()
    rows = run_profile.rows_of(run.tables)
    rows = rows[rows["source"] == f"{SOURCE}:18"]
    at = VALUES.index("time_ns")
    times = [node["values"][at] or 0 for node in own["nodes"] if node["line"] == 17]
    assert sum(times) == rows["dur_ns"].sum() > 0


MAPS, STACKS = "provenance_tracking_node_mappings", "provenance_tracking_kernel_stack_traces"


def with_log(folder: Path, change: Callable[[list[str]], list[str]]) -> Run:
    """Return the recording of Triton kernels with other records in its log."""
    text = gzip.decompress((FOLDER / "h200.log.gz").read_bytes()).decode()
    records = re.findall(r"^V.*\n(?:\t.*\n?)*", text, re.MULTILINE)
    (folder / "net.json.gz").write_bytes((FOLDER / "h200.json.gz").read_bytes())
    (folder / "dedicated_log_torch_trace_0.log").write_text("".join(change(records)))
    return load(parse(folder / "net.json.gz", folder / "net.pyprof2"))


@pytest.mark.parametrize("late", [(MAPS,), (STACKS,), (MAPS, STACKS)])
def test_what_a_log_says_late_is_of_the_graph_whose_kernels_it_names(
    h200: Run, tmp_path: Path, late: tuple[str, ...]
) -> None:
    """Of both graphs it comes behind the code of the second one."""

    def moved(records: list[str]) -> list[str]:
        return sorted(records, key=lambda each: any(n in each.split("\n")[0] for n in late))

    found, truth = compiled(with_log(tmp_path, moved)), compiled(h200)

    columns = ["kernel", "source", "shared_source", "op", "flops", "bytes"]
    pd.testing.assert_frame_equal(found[columns], truth[columns], check_categorical=False)


def few_stacks(record: str, lost: str) -> str:
    """Return a record of stacks without those of some starts of kernels, or with empty ones."""
    head, _, payload = record.partition("\n")
    if STACKS not in head or not lost:
        return record
    stacks = json.loads(payload)
    for name in stacks:
        if lost == "all" or re.search(r"__to_copy_4:(7|23)$", name):
            stacks[name] = []
    kept = {name: own for name, own in stacks.items() if own or lost != "some"}
    return f"{head}\n\t{json.dumps(kept)}\n"


@pytest.mark.parametrize("lost", ["", "some", "all"])
def test_without_maps_no_kernel_has_the_line_of_another_start_of_it(
    h200: Run, tmp_path: Path, lost: str
) -> None:
    run = with_log(
        tmp_path, lambda records: [few_stacks(each, lost) for each in records if MAPS not in each]
    )
    found, truth = compiled(run), compiled(h200)
    assert lost or found["kernel"].tolist() == truth["kernel"].tolist()
    assert found["source"].notna().any()

    def lines(row: Mapping[Any, Any]) -> set[str]:
        several = pd.notna(row["shared_source"])
        own = split_owners(str(row["shared_source" if several else "source"]))
        return set() if own == ["nan"] else set(own)

    known = {row["kernel_id"]: row for row in truth.to_dict("records")}
    pairs = [(row, known[row["kernel_id"]]) for row in found.to_dict("records")]
    wrong = [a["kernel"] for a, b in pairs if lines(a) and not lines(b) <= lines(a)]
    assert wrong == []
