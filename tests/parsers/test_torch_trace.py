"""Logs of torch's compiler: graphs with their keys, kernels and lines, and never an old line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2 import load, parse
from pyprof2.analysis.compiled.joining import worked_on
from pyprof2.api import run_profile
from pyprof2.errors import TraceError
from pyprof2.markers import COMPILED_KEY
from pyprof2.parsers.torch_trace import find_logs, read_log
from tests.compiled_trace import notes, trace

if TYPE_CHECKING:
    from pyprof2.recording import CompiledGraph

GIVEN: Final = Path(__file__).parents[3] / "shared" / "reference" / "compiled"
ID: Final = {"frame_id": 0, "frame_compile_id": 1, "attempt": 0}
CODE: Final = """
async_compile.wait(globals())
def call(args):
    buf0 = empty_strided_cuda((8, 16), (16, 1), torch.float32)
    extern_kernels.mm(arg0_1, arg1_1, out=buf0)
    buf1 = buf0; del buf0  # reuse
    # Topologically Sorted Source Nodes: [x], Original ATen: [aten.relu]
    stream0 = get_raw_stream(0)
    triton_poi_fused_relu_0.run(buf1, 128, stream=stream0)
    return (buf1, )
"""
POST: Final = """class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: "f32[8, 4]", arg1_1: "f32[4, 16]"):
         # File: /net/train.py:3 in forward, code: y = x @ w
        mm: "f32[8, 16][16, 1]cuda:0" = torch.ops.aten.mm.default(arg0_1, arg1_1);  arg0_1 = None
         # File: /net/train.py:4 in forward, code: y = y.relu()
        relu: "f32[8, 16][16, 1]cuda:0" = torch.ops.aten.relu.default(mm);  mm = None
        return (relu,)
"""
DYNAMO: Final = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[8, 4]"):
         # File: /net/train.py:6 in forward, code: y = x @ w
        y: "f32[8, 16]" = l_x_ @ l_w_;  l_x_ = None
         # File: /net/train.py:7 in forward, code: y = y.relu()
        y_1: "f32[8, 16]" = y.relu();  y = None
"""
MAPS: Final = {
    "cppCodeToPost": {"triton_poi_fused_relu_0": ["relu"], "extern_kernels.mm": ["mm"]},
    "postToPre": {"mm": ["y"], "relu": ["y_1"]},
}


def record(head: dict[str, Any], payload: str = "", **more: Any) -> str:
    """Return a record of a log."""
    text = json.dumps(head | ID | more | ({"has_payload": "0"} if payload else {}))
    lines = "".join(f"\t{line}\n" for line in payload.split("\n")) if payload else ""
    return f"V0521 11:50:39.474000 3054118 /torch/_inductor/graph.py:2347] {text}\n{lines}"


def artifact(name: str, payload: str) -> str:
    """Return a record of an artifact."""
    return record({"artifact": {"name": name, "encoding": "json"}}, payload)


def log_of(cache: str, *, dynamo: str = DYNAMO, maps: dict[str, Any] = MAPS) -> str:
    """Return a log of one graph."""
    return "".join([
        record({"dynamo_start": {"stack": []}}),
        record({"dynamo_output_graph": {}}, dynamo),
        record({"inductor_post_grad_graph": {}}, POST),
        record({"inductor_output_code": {"filename": "/cache/c.py"}}, CODE),
        artifact(f"fx_graph_cache_{cache}", json.dumps({"key": "fkey"})),
        artifact("inductor_provenance_tracking_node_mappings", json.dumps(maps)),
    ])  # fmt: skip


def read(folder: Path, text: str) -> list[CompiledGraph]:
    """Return the graphs of a log of this text."""
    path = folder / "dedicated_log_torch_trace_0.log"
    path.write_text(text)
    return [graph for _, graph in read_log(path).graphs]


def test_a_graph_has_its_key_id_launches_and_lines(tmp_path: Path) -> None:
    (graph,) = read(tmp_path, log_of("miss"))

    assert (graph.key, graph.compile_id, graph.is_backward) == ("fkey", "0/1", False)
    assert [launch.name for launch in graph.launches or ()] == [
        "aten::mm", "triton_poi_fused_relu_0",
    ]  # fmt: skip
    assert worked_on(graph) == [(("mm",), "computed"), (("relu",), "computed")]
    assert graph.nodes["mm"].lines == ("/net/train.py:3",)
    assert graph.nodes["relu"].texts == ("y = y.relu()",)
    assert graph.nodes["relu"].sizes == (8, 16)


def test_lines_of_a_graph_from_a_cache_are_those_of_the_program_as_it_is(tmp_path: Path) -> None:
    """Three lines were put above the function since the graph was compiled."""
    (graph,) = read(tmp_path, log_of("hit"))

    assert graph.nodes["mm"].lines == ("/net/train.py:6",)
    assert graph.nodes["relu"].lines == ("/net/train.py:7",)


@pytest.mark.parametrize("maps", [{}, {"postToPre": {"mm": ["gone"], "relu": ["y", "y_1"]}}])
def test_without_a_way_to_the_program_a_graph_from_a_cache_has_no_lines(
    tmp_path: Path, maps: dict[str, Any]
) -> None:
    (graph,) = read(tmp_path, log_of("hit", maps=maps))

    assert graph.nodes["mm"].lines == graph.nodes["relu"].lines == ()


def test_the_second_graph_of_a_compilation_is_backward(tmp_path: Path) -> None:
    found = read(tmp_path, log_of("miss") + log_of("miss").partition("\n")[2])

    assert [graph.is_backward for graph in found] == [False, True]


def test_a_compiler_that_is_reset_counts_anew(tmp_path: Path) -> None:
    found = read(tmp_path, log_of("miss") + log_of("hit"))

    assert [graph.is_backward for graph in found] == [False, False]


def test_without_a_record_a_file_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="TORCH_TRACE"):
        read(tmp_path, "hello\n")


def test_logs_are_found_in_a_folder_and_in_those_in_it(tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    names = ["dedicated_log_torch_trace_0_a.log", "trace/dedicated_log_torch_trace_1_b.log"]
    for name in names:
        (tmp_path / name).write_text("")
    (tmp_path / "other.log").write_text("")

    assert find_logs(tmp_path) == [tmp_path / name for name in names]


def test_a_recording_without_notes_is_explained_by_the_log_beside_it(tmp_path: Path) -> None:
    document = trace()
    found = notes(document)
    del document[COMPILED_KEY]
    (tmp_path / "net.json").write_text(json.dumps(document))
    log = "".join(
        record({"dynamo_start": {}}) * (not note["backward"])
        + record({"inductor_output_code": {"filename": "/cache/c.py"}}, note["code"])
        + artifact("fx_graph_cache_miss", json.dumps({"key": note["key"]}))
        + artifact(
            "inductor_provenance_tracking_kernel_stack_traces",
            json.dumps({
                kernel: [
                    f'  File "{file}", line {line}, in {name}\n    {code}\n'
                    for node in note["nodes"]
                    if node["name"] in nodes
                    for file, line, name, code in node["frames"][:1]
                ]
                for kernel, nodes in note["kernels"].items()
            }),
        )
        for note in found
    )  # fmt: skip
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "dedicated_log_torch_trace_0.log").write_text(log)

    run = load(parse(tmp_path / "net.json", tmp_path / "net.pyprof2"))

    assert [each["known"] for each in run.tables.manifest["ranks"][0]["compiled"]] == [True, True]
    rows = run_profile.rows_of(run.tables)
    products = rows[(rows["kernel"] == "aten::addmm") & rows["source"].notna()]
    assert set(products["source"].str.rpartition(":")[2]) == {"17", "19", "31"}
    named = load(
        parse(tmp_path / "net.json", tmp_path / "b.pyprof2", torch_trace=folder, force=True)
    )
    assert len(named.tables.manifest["compile_logs"]) == 1
    with pytest.raises(TraceError, match="TORCH_TRACE"):
        parse(tmp_path / "net.json", tmp_path / "c.pyprof2", torch_trace=tmp_path / "no")


@pytest.mark.real_trace
@pytest.mark.skipif(not GIVEN.is_dir(), reason="the logs are not here")
def test_logs_of_real_compilations_for_a_gpu_are_read(tmp_path: Path) -> None:
    found = {}
    for path in sorted(GIVEN.glob("*.log.gz")):
        text = gzip.decompress(path.read_bytes()).decode()
        found[path.name.partition(".")[0]] = read(tmp_path, text)

    assert {name: len(graphs) for name, graphs in found.items()} == {
        "cache_hit_miss": 3, "inductor_provenance_jit_cuda_log": 1,
        "inductor_provenance_jit_log": 1, "multi_rank_3": 7,
    }  # fmt: skip
    (cuda,) = found["inductor_provenance_jit_cuda_log"]
    lines = [
        [sorted({line.rpartition(":")[2] for n in nodes for line in cuda.nodes[n].lines}), evidence]
        for nodes, evidence in worked_on(cuda)
    ]
    # aot.py: 29 fc1, 30 relu, 31 sigmoid, 32 a * 3.14, 33 addmm, 34 gelu. Both products have one
    # name, and a list together: which is which nothing says.
    assert [launch.name for launch in cuda.launches or ()] == [
        "aten::mm", "triton_poi_fused_addmm_relu_sigmoid_0", "triton_poi_fused_mul_1", "aten::mm",
        "triton_poi_fused_addmm_gelu_2",
    ]  # fmt: skip
    assert [line for line, _ in lines] == [[], ["30", "31"], ["32"], [], ["34"]]
    assert all(graph.key for graphs in found.values() for graph in graphs)
    ranks = found["multi_rank_3"]
    assert [graph.compile_id for graph in ranks] == [f"0/{number}" for number in range(7)]
    # All of them came from a cache, and nothing leads to lines of the program as it was.
    assert not any(node.lines for graph in ranks for node in graph.nodes.values())
