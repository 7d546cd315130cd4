"""PyProf's markers give lines, shapes and element types; nothing in them is evaluated."""

from __future__ import annotations

import inspect
import re
import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.api.run import load
from pyprof2.parsers._pyprof_markers import (
    ARGUMENTS,
    TEXT_MAX,
    MarkerError,
    parse_call,
    parse_stack,
)
from pyprof2.signatures import Scalar, Tensor
from tests.nsight_exports import Export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SITE: Final = "/usr/lib/python3.6/site-packages"
TRACE: Final = "more/nsight/dlprof_norelu.sqlite"


def tensor(*shape: int, dtype: str = "float32", name: str = "") -> dict[str, Any]:
    return {"name": name, "type": "tensor", "shape": shape, "dtype": dtype}


def scalar(value: Any, name: str = "") -> dict[str, Any]:
    return {"name": name, "type": type(value).__name__, "value": value}


def call(mod: str, op: str, *args: dict[str, Any]) -> str:
    """Return the marker that PyProf writes: the `repr` of a dict."""
    return repr({"mod": mod, "op": op, "args": list(args)})


@pytest.mark.parametrize("shape", [(2**41,), (1,) * 65, (2**31, 2**31, 2), (-1,)])
def test_shapes_that_no_tensor_has_are_no_marker(shape: tuple[int, ...]) -> None:
    with pytest.raises(MarkerError, match="broken"):
        parse_call(call("torch", "relu", tensor(*shape)))


@pytest.mark.parametrize(
    ("frames", "stack"),
    [
        pytest.param(
            ["a.py:1", "lib/b.py:2", f"{SITE}/torch/nn/x.py:3"], "lib/b.py:2\na.py:1", id="own"
        ),
        pytest.param(
            ["a.py:1", f"{SITE}/transformers/m.py:3"],
            f"{SITE}/transformers/m.py:3\na.py:1",
            id="a package",
        ),
        pytest.param(["a.py:1", "/w/PyProf/pyprof/nvtx/nvmarker.py:9"], "a.py:1", id="PyProf"),
        pytest.param(["/usr/lib/python3.6/runpy.py:193"], None, id="the standard library"),
        pytest.param(["C:\\work\\a.py:7"], "C:\\work\\a.py:7", id="Windows"),
        pytest.param(['it\'s "odd" é.py:4'], 'it\'s "odd" é.py:4', id="quotes"),
        pytest.param([], None, id="none"),
    ],
)
def test_the_lines_are_those_outside_of_torch(frames: list[str], stack: str | None) -> None:
    marker = {"traceMarker": frames, "funcStack": "/<module>/add", "callid": 7}

    assert parse_stack(repr(marker)) == stack


@pytest.mark.parametrize(
    ("text", "op", "inputs"),
    [
        pytest.param(
            call("torch.nn.functional", "linear", tensor(4, 8), tensor(2, 8), scalar(None)),
            "aten::linear", (Tensor((4, 8), "f32"), Tensor((2, 8), "f32"), None), id="a function",
        ),
        pytest.param(
            call("torch.nn.functional", "conv2d", tensor(1, 3, 8, 8), tensor(6, 3, 3, 3),
                 tensor(6), scalar((2, 2)), scalar(1, "groups")),
            "aten::conv2d",
            (Tensor((1, 3, 8, 8), "f32"), Tensor((6, 3, 3, 3), "f32"), Tensor((6,), "f32"),
             Scalar([2, 2]), None, None, Scalar(1)),
            id="numbers and keywords",
        ),
        pytest.param(
            call("torch.nn.functional", "layer_norm", tensor(4, 8), tensor(8), tensor(8)),
            "aten::layer_norm",
            (Tensor((4, 8), "f32"), None, Tensor((8,), "f32"), Tensor((8,), "f32"), None),
            id="numbers left out between tensors",
        ),
        pytest.param(
            call("Tensor", "__iadd__", tensor(3, dtype="float16"), scalar(value=True)),
            "aten::add_", (Tensor((3,), "f16"), Scalar(value=True)), id="an operator",
        ),
        pytest.param(
            call("torch", "cat", tensor(3, dtype="int64"), tensor(4, dtype="bool"), scalar(0)),
            "aten::cat", ((Tensor((3,), "i64"), Tensor((4,), "bool")), Scalar(0)), id="a list",
        ),
        pytest.param(
            call("Tensor", "cuda", tensor(3, dtype="what")),
            "Tensor::cuda", (Tensor((3,), None),), id="no op, and no type that is known",
        ),
        pytest.param(
            call("LSTM", "linear", tensor(3)), "LSTM::linear", (Tensor((3,), "f32"),),
            id="another owner",
        ),
    ],
)  # fmt: skip
def test_a_call_gives_the_inputs_in_the_order_of_the_op(
    text: str, op: str, inputs: tuple[Any, ...]
) -> None:
    assert parse_call(text) == (op, inputs)


LITERALS: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)


def as_lists(value: Any) -> Any:
    return [as_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


@given(LITERALS)
def test_values_are_what_was_written(value: Any) -> None:
    _, inputs = parse_call(call("m", "f", {"name": "", "type": "x", "value": value}))

    assert inputs == (None if value is None else Scalar(as_lists(value)),)


@pytest.mark.parametrize(
    "text",
    [
        "{'mod': 'm', 'op': 'f', 'args': [__import__('os').getcwd()]}",
        "{'mod': 'm', 'op': 'f', 'args': [{'type': 'x', 'value': 1 + 1}]}",
        "{'mod': 'm', 'op': 'f', 'args': [{'type': 'x', 'value': f'{1}'}]}",
        "{'mod': 'm', 'op': 'f', 'args': [{'type': 'x', 'value': tensor(1.)}]}",
        "{'mod': 'm', 'op': 'f', 'args': [{'type': 'tensor', 'shape': ('a',)}]}",
        "{'mod': 'm', 'op': 'f', 'args': [{'type': 'tensor', 'shape': (1, 2",
        "{'mod': 'm', 'op': 'f', 'args': []} + 1",
        "{'mod': 'm', 'op': 'f'}",
        "{'mod': 'm', 'op': 'f', 'args': " + "[" * 5000 + "]" * 5000 + "}",
        "{'mod': 'm', 'op': 'f', 'args': [], 'x': '" + "a" * TEXT_MAX + "'}",
    ],
    ids=[
        "call", "sum", "f-string", "printed tensor", "shape of text", "cut", "more", "no args",
        "deep", "long",
    ],
)  # fmt: skip
def test_what_is_no_plain_literal_is_refused(text: str) -> None:
    with pytest.raises(MarkerError):
        parse_call(text)


def test_a_broken_marker_is_counted_and_nothing_else_is_lost(tmp_path: Path) -> None:
    export = Export().range("{'mod': 'm', 'op': 'f', 'args': [", 0, 100)
    export.range("{'traceMarker': ['a.py:1'", 0, 100)
    run = export.range("aten::mm, seq = 1", 10, 90).launched("k", 50, 1).load(tmp_path)

    assert run.kernels["op"].astype(str).tolist() == ["aten::mm"]
    assert run.tables.manifest["ranks"][0]["problems"] == {"pyprof-broken": 2}


@pytest.mark.torch
def test_arguments_stand_in_the_order_of_pytorchs_own_schemas() -> None:
    torch = pytest.importorskip("torch")
    same = {"self": "input", "train": "training"}
    wrong = []
    for name, arguments in ARGUMENTS.items():
        wanted = arguments.split()
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        orders = [[same.get(a.name, a.name) for a in s.arguments] for s in schemas]
        if not any(order[: len(wanted)] == wanted for order in orders):
            wrong.append((name, wanted, orders))
        function = getattr(torch.nn.functional, name, None)
        if inspect.isfunction(function) and "input" in inspect.signature(function).parameters:
            given_ = [p for p in inspect.signature(function).parameters if p != "_stacklevel"]
            shared = [p for p in wanted if p in given_]
            if given_[: len(shared)] != shared:
                wrong.append((name, wanted, [given_]))

    assert not wrong


def lines_of(path: Path) -> Counter[str]:
    """Kernel time by line, read with SQL: the innermost range of a stack around each launch."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT k.end - k.start, (SELECT n.text FROM NVTX_EVENTS n WHERE n.start <= r.start "
            "AND n.end >= r.start AND n.text LIKE '{''traceMarker''%' ORDER BY n.start DESC) "
            "FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId"
        ).fetchall()
    found: Counter[str] = Counter()
    for duration, stack in rows:
        own = [f for f in re.findall(r"'([^']+:\d+)'", stack) if "site-packages" not in f]
        found[own[-1]] += duration
    return found


def test_kernel_time_by_line_of_an_old_recording(shared_trace: Callable[[str], Path]) -> None:
    run = load(shared_trace(TRACE))

    found = run.kernels.groupby(run.kernels["source"].astype(str))["dur_ns"].sum().to_dict()

    assert found == lines_of(shared_trace(TRACE))
    assert sum(found.values()) == 346_684
    assert set(found) == {"dummy_network.py:25", "dummy_network.py:26"}


def test_convolutions_of_an_old_recording_are_costed(shared_trace: Callable[[str], Path]) -> None:
    kernels = load(shared_trace(TRACE)).kernels
    lines = kernels["source"].astype(str)

    # Outputs of 30 × 30 and 26 × 26, as the inputs of the next layers say.
    first, second = 2 * 6 * 30 * 30 * 3 * 3 * 3, 2 * 16 * 26 * 26 * 6 * 5 * 5
    assert kernels.groupby(lines)["flops"].sum().to_dict() == {
        "dummy_network.py:25": first, "dummy_network.py:26": second,
    }  # fmt: skip
    assert set(kernels["cost_status"]) == {"assumed"}
    assert set(kernels["compute_dtype"].dropna()) == {"f32"}
    assert kernels["tensor_core_eligible"].notna().all()
