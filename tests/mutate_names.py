"""Traces and exports with names of up to 200 KB, by seed: nests, digits, spaces, repeated endings.

Whatever looks for words in names must take time in proportion to their length.
"""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests import mutate_sqlite
from tests.mutate_trace import Mutant
from tests.synthetic_trace import synthetic_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE_MAX: Final = 3_000_000
"""Characters of long names in a mutant."""

_LENGTHS: Final = (100, 3_000, 16_383, 16_384, 16_385, 60_000, 200_000)
_PIECES: Final = (
    "<", ">", "<<", ">>", "(", ")", "()", "f<(int)1, ", "a<b<", "::", "a::", " ", "\t", "9",
    "_ZN", "_ZN9", "_ZN5aaaaa", "_Z", "I", "E", "1a", "Li1E", "St", ".kd", " [clone .kd]",
    " [clone ", " (.isra.0)", ".part.0", "multi_tensor_apply_kernel<", "winograd", "gemm",
    "sgemm_128x128_", "s16816", "sm80_xmma_", "_tn", "_nn_", "128x128x32_", "void ", "const ",
    "unsigned ", "at::", "(anonymous namespace)::", "operator()", "{lambda(", "#1}",
    "lambda(int)#1", "triton_poi_fused_", "_add_mul", "nccl", "ncclDevKernel_", "_Sum_f32_",
    "RING_LL(", "flash_fwd_", "fmha_", "cutlass_", "cudnn::", "elementwise_kernel<",
    "autograd::engine::evaluate_function: ", "Backward", "Backward0", "aten::", "aten::mm",
    "AccumulateGrad", "torch::", "CppNode<", "nn.Module: ", "Linear_0", "_0", "layer:", "a.", ".",
    "blocks.0.", "[0]", "ProfilerStep#", "step ", "step_1", "iteration", "#", "1.",
    "Optimizer.step#", "enumerate(DataLoader)#", "/a", "/a/b.py(12): f", "x.py", ".py:1", "(1): ",
    ";", "\n", "../", "\\", "C:\\", "<built-in ", "<frozen ", "site-packages/torch/",
    "/usr/lib/python3.11/", "'", '"', "{", "}", "{'", "{'mod': '", "{'traceMarker': ['",
    '{"pyprof2":1,', '"kind":"op",', "[", "]", "[[", ", ", ",", "=", ", seq = 1", ", op_id = 1",
    ", sizes = [[", "seq = ", "-", "--", "_", "__", "e", "\u202e", "\u0301", "é", "🙂", "\ufeff",
    "\u2028", "\x00", "\x1b[", "CUDA graph 1", "Memcpy HtoD (", " -> ", "graph_",
    "cudaLaunchKernel", "_v10000", "rank", "0x", "1e9", "\r\n",
)  # fmt: skip
"""What patterns look for, or stop at, and what they might begin anew with each time."""
_KEYS: Final = (
    "Call stack", "Module Hierarchy", "kernel_backend", "Collective name", "dtype", "stream",
    "Process Group Name", "Process Group Ranks", "External id", "Concrete Inputs", "Input type",
)  # fmt: skip
_MARKER_FIELDS: Final = ("op", "layer", "module", "source", "device", "forward", "name", "group")


def read_bases(_: Sequence[Path] = ()) -> list[Any]:
    """Return what gets the names: a trace and an export made here."""
    return [synthetic_trace(), *mutate_sqlite.read_bases()]


def mutate(seed: int, bases: Sequence[Any]) -> Mutant:
    """Return the mutant of that number; one in four is an export."""
    rng = random.Random(seed)  # noqa: S311
    if rng.random() < 0.25:
        return _export(rng, rng.choice(bases[1:]))
    return _trace(rng, json.loads(json.dumps(bases[0])))


def long_name(rng: random.Random) -> str:
    """Return a name: a beginning, pieces repeated to some length, and an ending."""
    pieces = rng.choices(_PIECES, k=rng.choice((1, 1, 1, 2, 3, 6)))
    size = rng.choice(_LENGTHS)
    how = rng.random()
    if how < 0.2:  # a nest
        half = size // (2 * len(pieces[0]))
        body = pieces[0] * half + rng.choice("a1 ") + rng.choice((")", ">", "]", "}", "'")) * half
    elif how < 0.35:  # no two repetitions are alike
        body = "".join(f"{p}{n}" for n in range(size // 8) for p in pieces[:1])
    else:
        word = "".join(pieces)
        body = word * (size // len(word))
    return (rng.choice(("", *_PIECES)) + body)[:size] + rng.choice(("", "", *_PIECES))


def _marker(rng: random.Random) -> str:
    fields = {name: long_name(rng) for name in rng.sample(_MARKER_FIELDS, rng.choice((1, 2)))}
    kind = rng.choice(("op", "op", "layer", "source", "process", "cpu", "optimizer"))
    return json.dumps({"pyprof2": 1, "kind": kind, "op": "aten::mm"} | fields, ensure_ascii=False)


def _trace(rng: random.Random, trace: dict[str, Any]) -> Mutant:
    events = trace["traceEvents"]
    names = [rng.choice((long_name, long_name, long_name, _marker))(rng) for _ in range(3)]
    where: list[str] = []
    left = FILE_MAX
    for event in rng.sample(events, rng.choice((1, 5, len(events)))):
        name = rng.choice(names)
        left -= len(name)
        if left < 0:
            break
        args = event.setdefault("args", {})
        how = rng.choice(("name", "name", "name", "args", "key", "module"))
        if how == "args":
            args[rng.choice(_KEYS)] = name
        elif how == "key":
            args[name] = 1
        else:
            event["name"] = f"nn.Module: {name}" if how == "module" else name
        where.append(f"{event.get('cat', 'metadata')}.{how}")
    if rng.random() < 0.1:
        trace["deviceProperties"][0]["name"] = rng.choice(names)
    text = json.dumps(trace, ensure_ascii=rng.random() < 0.5)
    return Mutant(text.encode("utf-8", "surrogatepass"), tuple(sorted(set(where))))


def _export(rng: random.Random, content: bytes) -> Mutant:
    """Return an export with long names of kernels, devices and ranges."""
    columns = {
        "StringIds": "value", "NVTX_EVENTS": "text", "TARGET_INFO_GPU": "name",
        "TARGET_INFO_CUDA_DEVICE": "name", "DIAGNOSTIC_EVENT": "text",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "export.sqlite")
        path.write_bytes(content)
        with closing(sqlite3.connect(path)) as connection:
            for table in rng.sample(list(columns), rng.choice((1, 2, 5))):
                name = rng.choice((long_name, long_name, _marker))(rng)
                column, every = columns[table], rng.choice((1, 2, 7, 50))
                every = max(every, 100 * len(name) // FILE_MAX)
                query = f"UPDATE {table} SET {column} = ? WHERE rowid % ? = 0"  # noqa: S608
                try:
                    connection.execute(query, (name, every))
                except sqlite3.OperationalError:  # no such table or column
                    continue
            connection.commit()
        return Mutant(path.read_bytes(), ("export",))
