"""Draw command lines that read a recording, of every command and option that the parser has."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.axes import VALUES
from pyprof2.cli import build_parser
from pyprof2.store.places import place

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

_NOT_READING: Final = ("capture", "watch", "demo", "parse", "lsp", "mcp")
_OUTPUT: Final = ("report", "export", "skyline-report")
"""Commands that write a file unless they are told to print."""
_OF_NO_FILE: Final = ("help", "verbose", "quiet", "force", "output", "version")
_AXES: Final = (
    "name", "op", "signature", "layer", "range", "source", "library", "stack", "direction", "step",
    "device", "stream", "rank", "category", "span", "tensor_core", "grid", "block", "registers",
    "shared_bytes", "kernel", "phase", "kind", "cause", "group", "call", "thread", "note", "line",
)  # fmt: skip
_VALUES: Final = {
    "by": (*_AXES, "op,step", "layer,op", "cause,source", "device,stream"),
    "on": ("all", "cpu", "A100 SXM 80GB,T4"), "device": ("H100 SXM", "0", "1"),
    "scale": ("op=aten::mm=0.5", "kernel=.=2", "layer=.=0"), "at": ("peak", "64", "oom"),
    "step": ("0", "1", "0:2"), "fail_on": ("time>3%",), "price": ("2.0",), "memory": ("80GB",),
    **{name: tuple(values) for name, values in VALUES.items()},
}  # fmt: skip
"""Values that options take, by where argparse keeps them; the others are given numbers."""
_NUMBERS: Final = ("1", "2", "0", "7", "latest", "all", ".", "0:1")
_QUERIES: Final = (
    "select * from kernels", "select device, stream, sum(dur_ns) from kernels group by 1, 2",
    "select * from ops", "select * from launches", "select * from idle",
)  # fmt: skip
_REFERENCES: Final = ("kernel:0", "kernel:1", "op:0", "op:3", "predict:A100 SXM 80GB")
_FORMS: Final = (
    ["--perfetto"], ["--chrome"], ["--folded"], ["--speedscope"], ["--skyline", "{}.sqlite"],
    ["--deepview", "{}.json"],
)  # fmt: skip


@cache
def commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands that read recordings, by their names."""
    of_commands = next(
        each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction)
    )
    return {
        name: parser for name, parser in of_commands.choices.items() if name not in _NOT_READING
    }


def draw(
    rng: random.Random, trace: Path, folder: Path, count: int
) -> Iterator[tuple[str, list[str]]]:
    """Yield so many command lines, each with a name.

    Args:
        rng: what chooses.
        trace: the recording or store.
        folder: where they may write.
        count: how many.
    """
    for at in range(count):
        name = rng.choice([*commands()])
        yield f"{at}-{name}", _words(rng, name, trace, folder / f"{at}.out")


def _words(rng: random.Random, name: str, trace: Path, out: Path) -> list[str]:
    words = [name, "-q"]
    if name in _OUTPUT:
        words += ["--force", "-o", str(out.with_suffix(".html.out"))]
    if name == "export":
        words += [word.format(out) for word in rng.choice(_FORMS)]
    actions = [
        each
        for each in commands()[name]._actions
        if each.option_strings and each.dest not in _OF_NO_FILE and each.type not in (Path, place)
    ]
    for action in rng.sample(actions, min(len(actions), rng.choice((0, 1, 1, 2, 3)))):
        words += _option(rng, action)
    return [*words, *_recordings(rng, name, str(trace))]


def _option(rng: random.Random, action: argparse.Action) -> list[str]:
    """Return an option with a value that it may take, or nothing where it names a file."""
    word = action.option_strings[-1]
    if action.nargs == 0:
        return [word]
    if action.metavar in ("FILE", "DIR", "CONFIG") or action.nargs:
        return []
    values = [*map(str, action.choices or _VALUES.get(action.dest, _NUMBERS))]
    return [word, rng.choice(values)]


def _recordings(rng: random.Random, name: str, trace: str) -> list[str]:
    match name:
        case "compare":
            return [trace, trace]
        case "ranks" | "whatif" | "energy" | "spend":
            return [trace] * rng.choice((1, 1, 2))
        case "batch":
            return [f"8={trace}", f"16={trace}"]
        case "sql":
            return [trace, rng.choice(_QUERIES)]
        case "explain":
            return [trace, rng.choice(_REFERENCES)]
    return [trace]
