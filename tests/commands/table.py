"""Every command line that a user may type, in a table made of the argument parser.

A line is a command with its options, an output format, a kind of input and a kind of output, on one
of the recordings. `COMMANDS` says how each command is called; the formats are those that its
`--format` takes. `test_table.py` runs the lines, each in a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyprof2
from pyprof2.cli import build_parser
from tests import mutate_sqlite
from tests.cli.test_batch import SIZES, events
from tests.kineto_events import trace
from tests.training_trace import training_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM: Final = Path(sys.executable).with_name("pyprof2")
"""The installed command."""
ROOT: Final = Path(__file__).resolve().parent.parent.parent
DATA: Final = ROOT / "pyprof2" / "data"

RECORDINGS: Final = ("gpu", "cpu", "nsight")
INPUTS: Final = ("store", "trace", "folder", "-")
SEVERAL: Final = "traces"
"""Two recordings of one job, for commands that take them by name."""
OUTPUTS: Final = ("file", "pipe", "-o")
"""Where the result goes: stdout into a file, stdout into a pipe, the option."""
MACHINE: Final = ("csv", "json", "parquet")


@dataclass(frozen=True)
class Command:
    """How a command is called.

    Attributes:
        words: its name and options; `{b8}` and the like stand for recordings of three batch sizes,
            `{out}` for a file that is free.
        after: what stands after the input.
        inputs: the kinds of input that it takes.
        recordings: those that it has an answer for.
        api: the rows that it shows, as an expression of the Python API over `run` and `path`;
            empty: there is none, and its formats are compared with one another.
        output: the name of the file that `{out}` is.
        nests: whether its JSON is nested, so that other formats have other rows.
    """

    words: str
    after: str = ""
    inputs: tuple[str, ...] = INPUTS
    recordings: tuple[str, ...] = RECORDINGS
    api: str = ""
    output: str = ""
    nests: bool = False

    @property
    def name(self) -> str:
        """The command itself."""
        return self.words.split()[0]


_SORTED: Final = "run.profile('kernel').sort_values('dur_ns', ascending=False, kind='stable')"
_QUERY: Final = "SELECT op, sum(self_ns) AS self_ns FROM ops GROUP BY op ORDER BY ALL"
COMMANDS: Final = (
    Command("prof --by op", api="run.profile('op')"),
    Command("prof --by kernel", api="run.profile('kernel')"),
    Command("prof --by kernel --sort dur_ns", api=_SORTED),
    Command(
        "prof --by kernel --category matmul,conv",
        api="run.profile('kernel', category=['matmul', 'conv'])",
    ),
    Command("prof --by step", api="run.profile('step')"),
    Command("prof --source-root .", api="run.profile('kernel')"),
    Command("lines", api="run.lines()"),
    Command("memory", nests=True),
    Command("memory --timeline"),
    Command("energy"),
    Command("sql", after=f"'{_QUERY}'", api=f'run.sql("{_QUERY}")'),
    Command("check", api="run.check()"),
    Command("idle --by group,cause", api="run.idle_profile()"),
    Command("idle"),
    Command("advise", api="run.advise()"),
    Command("advise --source-root ."),
    Command("explain", after="kernel:0", recordings=("gpu", "cpu")),
    Command("explain --rank 0", after="op:0"),
    Command("whatif --overlap", inputs=(*INPUTS, SEVERAL), api="run.ranks.what_if(overlap=True)"),
    Command("ranks", inputs=(*INPUTS, SEVERAL)),
    Command("ranks --by step", inputs=("store", SEVERAL)),
    Command("ranks --by kind", inputs=("store",)),
    Command("predict --on L4", recordings=("gpu", "nsight"), api="run.predict('L4')"),
    Command("batch {b2} {b4} {b8}", inputs=("",), recordings=("gpu",)),
    Command(
        "compare {path}", inputs=("store", "trace"), api="term_rows(pyprof2.compare(path, path))"
    ),
    Command("report --source-root .", output="page.html"),
    Command("export --perfetto", output="timeline.pftrace"),
    Command("export --perfetto --source-root .", output="timeline.pftrace"),
    Command("export --chrome", output="timeline.json"),
    Command("export --folded", output="stacks.txt"),
    Command("export --speedscope", output="stacks.speedscope.json"),
    Command("export --skyline {out}", output="report.sqlite"),
    Command("export --deepview {out}", output="report.json"),
    Command("parse", inputs=("trace", "folder", "-", SEVERAL), output="new.pyprof2"),
)
"""The commands that read recordings."""

ELSEWHERE: Final = {
    "capture": "tests/cli/test_capture_scripts.py", "watch": "tests/watch",
    "demo": "tests/cli/test_demo.py", "lsp": "tests/lsp/test_server.py",
    "mcp": "tests/agents",
}  # fmt: skip
"""The commands that record, or serve by a protocol, and the tests that start them in a process."""


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    command: Command
    form: str | None
    recording: str
    input: str
    output: str

    def __str__(self) -> str:
        form = f" --format {self.form}" if self.form else ""
        return f"{self.command.words}{form} [{self.recording} {self.input}, {self.output}]"

    def words(self, folder: Path, out: Path) -> list[str]:
        """Return the arguments of the program.

        Args:
            folder: with the recordings, as `make_recordings` writes them.
            out: the file to write, which is free.
        """
        command = self.command
        named = {"path": _path(folder, self.recording, self.input), "out": str(out)}
        named |= {f"b{size}": f"{size}={folder / f'b{size}.json'}" for size in SIZES}
        words = [word.format(**named) for word in command.words.split()]
        words += _inputs(folder, self.recording, self.input)
        words += [*shlex.split(command.after), *(["--format", self.form] if self.form else [])]
        return words + (["-o", str(out)] if self.output == "-o" else [])

    @property
    def is_machine(self) -> bool:
        """Whether programs read the output."""
        return self.form in MACHINE


def _path(folder: Path, recording: str, kind: str) -> str:
    suffix = ".sqlite" if recording == "nsight" else ".json"
    places = {"store": f"{recording}.pyprof2", "trace": f"{recording}{suffix}", "folder": recording}
    return str(folder / places[kind]) if kind in places else kind


def _inputs(folder: Path, recording: str, kind: str) -> list[str]:
    if kind == SEVERAL:
        return [str(folder / f"job{rank}.json") for rank in range(2)]
    return [_path(folder, recording, kind)] if kind else []


def stdin_of(line: Line, folder: Path) -> Path | None:
    """Return the file that the command reads on stdin, if it does."""
    return Path(_path(folder, line.recording, "trace")) if line.input == "-" else None


def options_of(command: str) -> dict[str, argparse.Action]:
    """Return the options of a command by their names."""
    parser = build_parser(command)
    of_commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    found: dict[str, argparse.Action] = of_commands.choices[command]._option_string_actions
    return found


def forms_of(command: str) -> list[str | None]:
    """Return the formats that a command writes; None alone: it has no such option."""
    chosen = options_of(command).get("--format")
    return [None] if chosen is None else list(chosen.choices or ())


def lines(command: Command) -> Iterator[Line]:
    """Yield every line of a command."""
    has_option = "-o" in options_of(command.name)
    outputs: tuple[str, ...] = OUTPUTS if has_option else OUTPUTS[:2]
    if command.output:
        outputs = ("file",) if "{out}" in command.words else ("-o",)
    forms = forms_of(command.name)
    for line in itertools.product(forms, command.recordings, command.inputs, outputs):
        if SEVERAL not in line or line[1] == "gpu":
            yield Line(command, *line)


def make_recordings(folder: Path) -> None:
    """Write the recordings, the store of each, and the rows that the API gives of each."""
    folder.mkdir()
    (folder / "gpu.json").write_bytes(training_trace(steps=3))
    (folder / "cpu.json").write_bytes((DATA / "demo.json.gz").read_bytes())
    (folder / "nsight.sqlite").write_bytes(mutate_sqlite.read_bases()[1])
    for rank in range(2):
        (folder / f"job{rank}.json").write_bytes(training_trace(rank, 2, steps=2))
    for size in SIZES:
        trace(folder / f"b{size}.json", *events(size))
    for name in RECORDINGS:
        file = Path(_path(folder, name, "trace"))
        (folder / name).mkdir()
        (folder / name / file.name).write_bytes(file.read_bytes())
        pyprof2.parse(file, folder / f"{name}.pyprof2")
    code = (Path(__file__).with_name("api_rows.py")).read_text()
    for name in RECORDINGS:
        asked = {c.words: c.api for c in COMMANDS if c.api and name in c.recordings}
        path = folder / f"{name}.pyprof2"
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            input=json.dumps(asked), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (folder / f"{name}.rows.json").write_text(done.stdout)


def api_rows(folder: Path, line: Line) -> list[dict[str, Any]] | None:
    """Return the rows that the API gives for a line; None where there is no such call."""
    if not line.command.api or line.input == SEVERAL:
        return None
    found = json.loads((folder / f"{line.recording}.rows.json").read_text())
    rows: list[dict[str, Any]] = found[line.command.words]
    return rows
