"""Each command that README, pages and help show runs as it stands, in a process of its own.

The commands are copied out of the text. They run in a folder whose recordings have the names that
the text uses.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

import pyprof2
from docs import examples
from tests import mutate_sqlite
from tests.cli.test_batch import events as batch_events
from tests.cli.test_serving import _server as write_server
from tests.commands.table import PROGRAM, ROOT, options_of
from tests.conftest import once
from tests.kineto_events import trace
from tests.snapshots import alloc, block, dump, event, segment, snapshot
from tests.training_trace import training_trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

README: Final = ROOT / "README.rst"
PAGES: Final = (README, *sorted((ROOT / "docs").rglob("*.rst")))
_SHOWN: Final = re.compile(r"^ +(?:\$ )?(pyprof2 (?:[a-z]+) .+)$", re.MULTILINE)
_GENERATED: Final = re.compile(
    r"^\.\. generated: \$.*?^\.\. end generated", re.MULTILINE | re.DOTALL
)
"""Their output is held by `make docs`, which runs them in processes too."""
_REMARK: Final = re.compile(r"(?:   | #).*| && .*")
_CONTINUED: Final = re.compile(r"\\\n +")

ELSEWHERE: Final = {
    "pyprof2 capture": "tests/cli/test_capture_scripts.py, tests/journeys",
    "pyprof2 watch": "tests/watch, tests/journeys/test_watch.py",
    "pyprof2 mcp": "tests/agents",
    "pyprof2 lsp": "tests/lsp",
    "--entry": "tests/cli/test_entry_points.py",
    "--dask": "tests/store/test_clusters.py",
    "--torch-trace": "tests/journeys/test_compiled.py",
    "--capture": "tests/journeys/test_graphs.py",
    "://": "tests/store/test_remote.py",
    "nsys-rep": "tests/journeys/test_nsys.py",
    "--calibrate": "tests/cli/test_predict.py",
    "--code": "tests/reports/page/test_dials_page.py",
    "~/net": "a folder of the reader's",
    "--model": "tests/cli/test_serving.py",
    "--step-pattern": "tests/cli/test_serving.py",
    "/shared/": "a folder of everybody's",
    "OPTIONS": "a synopsis",
}
"""Commands that need a program, a server or a compiler, by a word in them, and who runs them."""


def _commands(page: Path) -> Iterator[str]:
    text = _CONTINUED.sub(" ", _GENERATED.sub("", page.read_text(encoding="utf-8")))
    for match in _SHOWN.finditer(text):
        command = _REMARK.sub("", match[1]).strip()
        try:
            words = shlex.split(command)
        except ValueError:  # prose with an apostrophe
            continue
        if not command.endswith((".", ",", "`")) and words[1] in _NAMES:
            yield command


_NAMES: Final = frozenset(
    ("parse", "prof", "lines", "memory", "energy", "check", "idle", "advise", "explain", "whatif",
     "batch", "predict", "ranks", "compare", "report", "export", "demo", "capture", "watch", "lsp",
     "mcp")
)  # fmt: skip
SHOWN: Final = {command: page for page in reversed(PAGES) for command in _commands(page)}
RUNNABLE: Final = [
    pytest.param(command, marks=() if page == README else pytest.mark.slow)
    for command, page in SHOWN.items()
    if not any(word in command for word in ELSEWHERE)
]


def _make_folder(folder: Path) -> None:
    """Write recordings under all names that the pages use."""
    folder.mkdir()
    examples.write_recordings(folder)
    training = training_trace(steps=8)
    faster = (folder / "faster.json").read_bytes()
    for name in ("net", "before", "after", "run", "new", "old", "other", "monday", "tuesday"):
        content = faster if name in ("after", "new", "tuesday") else training
        (folder / f"{name}.json.gz").write_bytes(content)
        pyprof2.parse(folder / f"{name}.json.gz", folder / f"{name}.pyprof2")
    pyprof2.parse(folder / "demo.json.gz", folder / "demo.pyprof2")
    pyprof2.parse(folder / "job", folder / "job.pyprof2")
    (folder / "traces").mkdir()
    for rank, file in enumerate(sorted((folder / "job").iterdir())):
        for copy in (f"rank{rank}.json", f"traces/{file.name}", f"train-rank{rank}.json.gz"):
            shutil.copy(file, folder / copy)
    for batch in (2, 4, 8, 16, 32, 64, 256):
        file = trace(folder / f"batch{batch}.json", *batch_events(batch))
        pyprof2.parse(file, folder / f"b{batch}.pyprof2")
    for name in ("server", "generate", "sglang", "vllm", "decode"):
        write_server(folder, name=f"{name}.json.gz")
    pyprof2.parse(folder / "decode.json.gz", folder / "decode.pyprof2")
    (folder / "net.sqlite").write_bytes(mutate_sqlite.read_bases()[1])
    (folder / "train.py").write_text("batch_size = 16\n")
    (folder / "mine.json").write_text(json.dumps(_DEVICE))
    memory = snapshot(
        [segment(block(4096), block(1 << 20, "inactive"))],
        [alloc(1 << 20, 4096), event("oom", None, 1 << 30)],
    )
    for name in ("run", "snapshot", "before", "after"):
        dump(folder, memory, f"{name}.pickle")


_DEVICE: Final = {
    "name": "mine", "memory_gb_per_s": 1935, "vector_tflops": {"f32": 19.5, "bf16": 39},
    "matrix_tflops": {"bf16": 312, "f16": 312, "tf32": 156}, "vendor": "nvidia",
    "compute_capability": "8.0", "watts": 300,
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Return a folder with the recordings, of this test alone."""
    made = once("shown-commands", _make_folder)
    for entry in made.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    return tmp_path


@pytest.mark.parametrize("command", RUNNABLE, ids=str)
def test_a_command_that_a_page_shows_runs(command: str, here: Path) -> None:
    words = shlex.split(command)
    if "--within" in words:  # of a model that has such a layer
        (here / "net.pyprof2").unlink()
        (here / "net.pyprof2").symlink_to(here / "demo.pyprof2")
    if "--batch-size" in words and "--batches" in words:
        (here / "net.pyprof2").unlink()
        (here / "net.pyprof2").symlink_to(
            here / f"b{words[words.index('--batch-size') + 1]}.pyprof2"
        )
    if words[1] == "parse" and "-o" not in words:
        (here / "net.pyprof2").unlink()
    for option, word in itertools.pairwise(words):
        if option in ("-o", "--skyline", "--deepview"):
            (here / word).unlink(missing_ok=True)
        size, equals, name = word.partition("=")
        if equals and size.isdecimal() and not (here / name).exists():
            (here / name).symlink_to(here / f"b{size}.pyprof2")
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        ["/bin/bash", "-c", command], cwd=here, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False, env=os.environ | {"PATH": path},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    written = [path for path in here.iterdir() if not path.is_symlink()]
    assert done.stdout or written


def test_pages_show_commands_and_those_left_out_are_run_elsewhere() -> None:
    assert len(RUNNABLE) >= 60
    assert {shlex.split(command)[1] for command in SHOWN} >= {"prof", "parse", "capture", "mcp"}
    for place in ELSEWHERE.values():
        for path in re.findall(r"tests/[\w./]+", place):
            assert (ROOT / path).exists(), path


# -- messages ------------------------------------------------------------------------------------

_SOURCES: Final = [
    path for name in ("pyprof2", "analysis", "parsers") for path in (ROOT / name).rglob("*.py")
]
_COMMAND: Final = re.compile(rf"pyprof2 ({'|'.join(sorted(_NAMES))})((?: [^\s'\"`;,)]+)*)")
_OPTION: Final = re.compile(r"--[a-z][a-z-]+")
_PIP: Final = re.compile(r"pip install ([A-Za-z][\w.-]*)")


def test_a_message_names_commands_and_options_that_there_are() -> None:
    found = 0
    for path in _SOURCES:
        for command, rest in _COMMAND.findall(path.read_text(encoding="utf-8")):
            for option in _OPTION.findall(rest.partition(" pyprof2")[0]):
                assert option in options_of(command), f"{path.name}: pyprof2 {command} {option}"
                found += 1
    assert found > 40


def test_a_message_names_packages_that_the_metadata_names() -> None:
    known = (ROOT / "setup.cfg").read_text(encoding="utf-8").lower()
    found = set()
    for path in _SOURCES:
        found |= set(_PIP.findall(path.read_text(encoding="utf-8")))

    assert {name for name in found if name.lower() not in known} == set()
