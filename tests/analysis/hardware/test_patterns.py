"""Regular expressions of the package take time in proportion to the text, whatever it is."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import time
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest

import pyprof2
from pyprof2.analysis.hardware import tensor_core
from pyprof2.analysis.hardware.kernel_names import (
    SPAN,
    bounded,
    category_by_name,
    elements_of,
    is_helper,
    only_moves,
    short_name,
)
from pyprof2.analysis.hardware.tensor_core import tensor_core_by_name
from pyprof2.api.run import load
from tests import kineto_events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHORT, LONG = 4096, 16_384
GROWTH_MAX = 10
"""In proportion it is 4, of a square 16."""
QUICK_S = 0.004
"""What even the long text takes no longer for is not measured twice."""
NO_IMPORT = ("demo_train", "__main__", "accelerate", "lightning", "tensorboard", "transformers")
RE_CALLS = {
    f"re.{way}" for way in (*("compile", "subn"), "search", "match", "fullmatch", "sub", "split")
}
WAYS = ("search", "match", "fullmatch", "sub", "finditer", "findall", "split")


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(pyprof2.__path__, "pyprof2."):
        if not found.name.endswith(NO_IMPORT):
            module: object = importlib.import_module(found.name)
            # What is compiled has no patterns, and `pyprof2.parse` is the function of this name.
            if isinstance(module, ModuleType) and str(module.__file__).endswith(".py"):
                yield module


def patterns_in(value: Any) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns that a global holds, at any depth."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list, set, frozenset)):
        for part in value:
            yield from patterns_in(part)
    elif isinstance(value, dict):
        yield from patterns_in(list(value.values()))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from patterns_in([getattr(value, field.name, None) for field in fields(value)])


def uses() -> dict[re.Pattern[Any], set[str]]:
    """Return every pattern of the package, with the ways in which it is applied."""
    found: dict[re.Pattern[Any], set[str]] = {}
    for module in modules():
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            ways = set(re.findall(rf"\b{name}\.({'|'.join(WAYS)})\b", source)) or {"search"}
            for pattern in patterns_in(value):
                found.setdefault(pattern, set()).update(ways)
        for call in ast.walk(ast.parse(source)):
            match call:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re"), attr=way),
                    args=[ast.Constant(value=text), *_],
                ) if way in WAYS:
                    found.setdefault(re.compile(text), set()).add(way)
    return found


MADE_FOR_EACH_WORD: Final = "pyprof2.analysis.hardware.tensor_core._spelled"
OF_THE_USER: Final = (
    "pyprof2.analysis.summaries.profile_columns.compile_pattern",
    "pyprof2.analysis.job.what_if.scale",
    "pyprof2.analysis.serving.quantisation._is_kept",
    "pyprof2.cli.watch._pattern",
    "pyprof2.watch.recording.fits",
)
KEPT: Final = {
    "pyprof2.analysis.hardware.devices._read_table",
    "pyprof2.analysis.hardware.kernel_names.bounded",
}
"""Functions that make patterns which a global of their module, or of their caller's, holds."""


OF_A_NAME: Final = {"pyprof2.parsers._generated_code._triton_parameters"}
"""Functions whose patterns hold a name that is escaped."""


def makers() -> set[str]:
    """Return the functions of the package that make a pattern of something but a constant."""
    return {
        f"{module.__name__}.{function.name}"
        for module in modules()
        for function in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in RE_CALLS
        if not isinstance(call.args[0], ast.Constant)
    }


def test_patterns_that_are_made_at_run_time_are_those_that_are_known_here() -> None:
    assert makers() == {MADE_FOR_EACH_WORD, *OF_THE_USER, *KEPT, *OF_A_NAME}


def test_the_pattern_of_every_word_takes_time_in_proportion_to_the_text() -> None:
    patterns = {tensor_core._spelled(word) for word in tensor_core._NO_PRODUCT}

    assert len(patterns) > 50
    assert [slow for each in patterns for slow in slow_pieces(each, {"search"})] == []


def pieces(pattern: re.Pattern[Any]) -> set[str]:
    """Return texts of which a pattern consists: its literal words, and runs of those."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin1")
    text = re.sub(r"\(\?#?[a-zA-Z]*:|\(\?(?:<?[=!]|P<\w+>|>)", "(", text)
    plain = re.sub(r"\\[swSWbdZA]|[*+?]|\{\d*,?\d*\}|\[[^\]]*\]", "", text.replace("\\", ""))
    words = set(re.findall(r"[\w:<>{},.' #-]+", plain)) | set(re.findall(r"[a-z]{2,}", plain))
    return {word for word in words if len(word) < 60} | set("a0A _:<([{,'\"") | {".kd", " [clone "}


def seconds(pattern: re.Pattern[Any], way: str, text: str | bytes) -> float:
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        if way in ("match", "fullmatch"):
            getattr(pattern, way)(text)
        else:
            sum(1 for _ in pattern.finditer(text))
        best = min(best, time.process_time() - began)
        if best < QUICK_S:
            break
    return best


def slow_pieces(pattern: re.Pattern[Any], ways: set[str]) -> Iterator[str]:
    def text(piece: str, length: int) -> Any:
        whole = (piece * (length // len(piece) + 1))[:length] + "\0"
        return whole if isinstance(pattern.pattern, str) else whole.encode()

    for piece in sorted(pieces(pattern)):
        for way in ways:
            if (long := seconds(pattern, way, text(piece, LONG))) > QUICK_S:
                short = seconds(pattern, way, text(piece, SHORT))
                if long > GROWTH_MAX * short:
                    yield f"{pattern.pattern[:80]!r} {way} {piece!r}: {short:.4f} s, {long:.4f} s"


@pytest.mark.minutes
def test_every_pattern_takes_time_in_proportion_to_the_text() -> None:
    found = uses()

    assert len(found) > 150
    assert [slow for pattern, ways in found.items() for slow in slow_pieces(pattern, ways)] == []


def test_a_bounded_pattern_finds_what_is_within_its_span() -> None:
    pattern = bounded(r"a\w*b|c[*+]\+d")

    assert pattern.search("a" + "x" * SPAN + "b")
    assert not pattern.search("a" + "x" * (SPAN + 1) + "b")
    assert pattern.search("c*+d")


@pytest.mark.parametrize(
    "piece",
    [".kd", " [clone ", "[clone a]", " ", "multi_tensor_apply_kernel", "winograd", "CppNode<a::"],
)
def test_a_trace_of_long_names_is_read_in_a_moment_and_check_says_what_was_cut(
    tmp_path: Path, piece: str
) -> None:
    name = piece * (200_000 // len(piece))
    began = time.process_time()

    run = load_named(tmp_path, name)

    assert time.process_time() - began < 20
    assert {len(kernel) for kernel in run.kernels["kernel"]} == {16_384}
    assert "a name of over 16,384 characters: cut" in run.check().to_string()


def load_named(folder: Path, name: str) -> Any:
    """Return a run in which ops, nodes, ranges, frames and a kernel have one name."""
    return load(
        kineto_events.trace(
            folder,
            kineto_events.op(f"aten::{name}", 0, 20, seq=1),
            kineto_events.node(name, 30, 20, seq=1),
            kineto_events.annotation(name, 0, 90),
            kineto_events.frame(name, 1, 80),
            kineto_events.launched(5, 1, at=12, dur=3, name=name),
        )
    )


@pytest.mark.parametrize("piece", [".kd", "multi_tensor_apply_kernel", "winograd", "fwd", "xmma_"])
def test_what_a_name_tells_is_found_out_in_a_moment(piece: str) -> None:
    name = (piece * 16_384)[:16_384]
    began = time.process_time()

    for ask in (
        short_name, category_by_name, elements_of, is_helper, only_moves, tensor_core_by_name
    ):  # fmt: skip
        ask(name)

    assert time.process_time() - began < 5
