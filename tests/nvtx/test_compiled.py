"""Compiled trainings: the FLOPs of each line, layer and phase are those of the eager program."""

# mypy: disable-error-code="no-untyped-call,attr-defined"

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from pyprof2 import load
from pyprof2.api import run_profile
from pyprof2.nvtx import compile_notes, init, shutdown
from tests import compiled_models
from tests.compiled_models import TRAININGS
from tests.compiled_oracle import eager_counts, run_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.api.run import Run

QUICK: Final = "graph_breaks"
STEPS, FIRST = 2, 2
ROOT: Final = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.slow,
]


@pytest.fixture(autouse=True)
def _compile_from_scratch() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    shutdown()
    torch._dynamo.reset()


def record(name: str, folder: Path) -> Run:
    """Record two steps of a compiled training, after two others."""
    training = TRAININGS[name]
    torch.manual_seed(0)
    model = training.make()
    init(sink="kineto", cpu_peaks=False, energy=False)
    compiled = training.compile_(model)
    run_steps(training, compiled, FIRST)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        run_steps(training, compiled, STEPS, FIRST)
    trace = folder / "trace.json"
    recorded.export_chrome_trace(str(trace))
    shutdown()
    return load(trace, source_root=str(ROOT / "tests"))


def text(value: Any) -> str | None:
    return None if pd.isna(value) else str(value)


VERSION: Final = tuple(map(int, torch.__version__.split(".")[:2]))
OLDER: Final = VERSION < (2, 13)
LAYERS_LESS: Final = frozenset({"recurrent", "residual"} if OLDER else {"recurrent"})
"""Where gradients are added up in the product that makes the last of them, of which the compiler
keeps no module: its layer is null. Newer ones do so for a weight that is used anew in each step."""
LINES_LESS: Final = LAYERS_LESS if OLDER else frozenset()
"""An older compiler keeps no line of such a product either."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == QUICK else pytest.mark.release) for n in TRAININGS]
)
def test_flops_lines_and_layers_are_those_of_the_eager_program(name: str, tmp_path: Path) -> None:
    run = record(name, tmp_path)
    eager = eager_counts(TRAININGS[name], compiled_models.__file__, STEPS, FIRST)

    calls = run.tables.manifest["ranks"][0]["compiled"]
    assert all(each["known"] for each in calls), calls
    rows = run_profile.rows_of(run.tables)
    # All of the kernels' time has lines, one or several; of few kernels it varies.
    own = rows[rows["link"] == "compiled"]
    has_line = own["source"].notna() | own["shared_source"].notna()
    if name in LINES_LESS:
        assert has_line.mean() >= 0.8
    else:
        assert own["dur_ns"][has_line].sum() >= 0.98 * own["dur_ns"].sum() > 0
    # Each kernel that the compiler wrote has a cost, save some of one that lists no nodes of them.
    statuses = set(own["cost_status"][own["kernel"].str.contains("cpp_")])
    assert statuses - ({"no_formula"} if VERSION < (2, 9) else set()) == {"assumed"}

    found: dict[str, Counter[tuple[str, str | None]]] = {
        "source": Counter(), "layer": Counter(),
    }  # fmt: skip
    wanted: dict[str, Counter[tuple[str, str | None]]] = {"source": Counter(), "layer": Counter()}
    products = rows[rows["flops"].notna() & rows["category"].isin(["matmul", "conv", "attention"])]
    for row in products.to_dict("records"):
        phase = "recompute" if row["recompute"] else str(row["direction"])
        for axis, sums in found.items():
            sums[phase, text(row[axis])] += int(row["flops"])
    root = type(TRAININGS[name].make()).__name__
    for (phase, line, layer), flops in eager.flops.items():
        wanted["source"][phase, line] += flops
        wanted["layer"][phase, layer or root] += flops
    for axis, sums in found.items():
        if name == "checkpointed":
            # What the compiler runs again is its choice: it may be more than a checkpoint does.
            for each in (sums, wanted[axis]):
                for key in [key for key in each if key[0] == "recompute"]:
                    del each[key]
        if name in (LAYERS_LESS if axis == "layer" else LINES_LESS):
            del sums["backward", None]
            assert sums <= wanted[axis]
        else:
            assert sums == wanted[axis]

    # The op of each part is one that the eager program runs at that line.
    parts = pd.read_parquet(run.path / "kernel_parts").drop_duplicates(["node", "op", "source"])
    ran = eager.ops
    wrong = [
        (part["node"], part["op"], part["source"])
        for part in parts.to_dict("records")
        if text(part["source"]) is not None
        and text(part["op"]) is not None
        and not any((each, part["source"]) in ran for each in named_alike(part["op"]))
        # An older compiler names what an op was taken apart into, not the op: the line is right.
        and not (OLDER and part["source"] in {line for _, line in ran})
    ]
    assert wrong == []


def named_alike(op: str) -> list[str]:
    """Return the names that an op has in an eager program, that its functional form lacks."""
    short = op.removeprefix("aten::")
    others = {
        "native_dropout": ("bernoulli_", "div_", "mul"),
        "native_dropout_backward": ("mul", "native_dropout_backward"),
        "_native_batch_norm_legit_functional": ("native_batch_norm",),
        "full_like": ("ones_like", "zeros_like", "full_like"),
        "full": ("zeros", "new_zeros", "ones", "full", "zeros_like"),
        "view": ("view", "_unsafe_view", "reshape"),
        "addmm": ("addmm", "mm", "add"),
        "add": ("add", "add_", "addmm"),
        "_to_copy": ("_to_copy", "copy_"),
        "arange": ("arange",),
    }
    return [f"aten::{each}" for each in (short, f"{short}_", *others.get(short, ()))]


def test_what_fails_while_notes_are_taken_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        msg = "this version of torch has none of it"
        raise RuntimeError(msg)

    for name in ("_node", "_note"):
        monkeypatch.setattr(compile_notes.CompileNotes, name, fails)
    for name in ("_buffer", "_compile_id", "encoded"):
        monkeypatch.setattr(compile_notes, name, fails)

    run = record("mlp", tmp_path)

    assert len(run_profile.rows_of(run.tables))


PRODUCT: Final = "    y = x @ w"
CALL: Final = "    call(x, w).backward()"
SCRIPT: Final = """
import sys
import torch
from torch.nn import functional
{above}
def double(x, w):
    y = x @ w
    y = functional.gelu(y)
    return y.sum()

torch.manual_seed(0)
x, w = torch.randn(8, 16), torch.randn(16, 4, requires_grad=True)
call = torch.compile(double)
for _ in range(3):
    call(x, w).backward()
"""


@pytest.mark.release
@pytest.mark.parametrize("options", [[], ["--keep-cache"]])
def test_an_edit_above_a_function_leaves_no_old_line(options: list[str], tmp_path: Path) -> None:
    """Keys of torch's caches do not hold the numbers of lines."""
    script, trace = tmp_path / "train.py", tmp_path / "train.json.gz"
    environment = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    found = []
    for above in ("", "# one\n# two\n# three\n"):
        script.write_text(textwrap.dedent(SCRIPT).format(above=above))
        command = [sys.executable, "-m", "pyprof2", "capture", "--kineto", *options]
        subprocess.run(
            [*command, "-o", str(trace), "--force", str(script)],
            check=True, env=environment, capture_output=True,
        )  # fmt: skip
        rows = run_profile.rows_of(load(trace).tables)
        own = rows[(rows["kernel"] == "aten::mm") & (rows["direction"] == "forward")]
        lines = script.read_text().split("\n")
        at = [f"{script}:{lines.index(each) + 1}" for each in (PRODUCT, CALL)]
        (line,) = own["source"].map(text).unique()
        found.append(at.index(line))
    # Of a graph from a cache only the line that calls it is known.
    assert found == ([0, 1] if options else [0, 0])
