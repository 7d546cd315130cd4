"""Exit codes, streams and start-up of the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2 import errors
from pyprof2.cli import build_parser
from tests.builders import mm_trace, profile_rows

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = [sys.executable, "-m", "pyprof2"]


def in_a_process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=ROOT, **options,
    )  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return a trace of one kernel."""
    path = tmp_path / "mm.json"
    path.write_text(json.dumps(mm_trace()))
    return path


def test_help_names_every_command(invoke: Callable[..., Any]) -> None:
    result = invoke("--help")

    assert (result.code, result.err) == (0, "")
    assert all(f"    {name} " in result.out for name in ("parse", "prof", "check", "demo"))


def test_help_lists_every_command_once_in_groups(invoke: Callable[..., Any]) -> None:
    _, _, listed = invoke("--help").out.partition("commands:\n")
    lines = [line for line in listed.splitlines() if line[:2] == "  " and line[4:5] != " "]
    titles = [line.strip() for line in lines if line[2] != " "]
    names = [line.split()[0] for line in lines if line[2] == " "]

    assert titles == ["Record", "Read", "Explain", "Many runs", "Export", "Editor"]
    folder = Path(pyprof2.__file__).parent / "cli"
    commands = {path.stem for path in folder.glob("*.py") if ".add_parser(" in path.read_text()}
    assert sorted(names) == sorted(commands)


@pytest.mark.parametrize(
    ("word", "suggested"),
    [("prfo", "prof"), ("pase", "parse"), ("reprot", "report"), ("advice", "advise")],
)
def test_a_mistyped_command_gets_a_suggestion(
    invoke: Callable[..., Any], word: str, suggested: str
) -> None:
    result = invoke(word, "x.json")

    assert (result.code, result.out) == (2, "")
    assert f"no command {word!r}" in result.err
    assert f"did you mean {suggested}" in result.err
    assert len(result.err.splitlines()) == 1


def test_a_typo_in_one_of_few_words_gets_a_suggestion(invoke: Callable[..., Any]) -> None:
    result = invoke("ranks", "job", "--by", "straggl")

    assert result.code == 2
    assert "did you mean straggler?" in result.err


def test_skylines_first_command_leads_to_the_editor(invoke: Callable[..., Any]) -> None:
    result = invoke("interactive", "entry_point.py")

    assert result.code == 2
    assert "the editor starts 'pyprof2 lsp' itself" in result.err


@pytest.mark.parametrize("before", [[], ["-q"], ["--verbose"]])
def test_a_trace_without_a_command_is_profiled(
    invoke: Callable[..., Any], trace: Path, before: list[str]
) -> None:
    options = ["--by", "op", "--format", "csv"]

    assert invoke(*before, trace, *options).out == invoke(*before, "prof", trace, *options).out
    assert invoke(trace).out.startswith("device")


def test_a_trace_may_have_the_name_of_no_command_and_no_ending(
    invoke: Callable[..., Any], trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trace.parent)
    trace.rename("prfo")

    assert invoke("prfo").code == 0


def test_a_trace_that_is_not_there_is_missed_as_by_prof(invoke: Callable[..., Any]) -> None:
    assert invoke("nowhere.json").err == invoke("prof", "nowhere.json").err


@pytest.mark.parametrize("command", ["parse", "prof", "check", "demo"])
def test_every_argument_says_what_it_does(command: str) -> None:
    (commands,) = (a for a in build_parser()._actions if a.dest == "==SUPPRESS==")
    assert isinstance(commands.choices, dict)

    unexplained = [a.dest for a in commands.choices[command]._actions if not a.help]

    assert unexplained == []


def test_version_is_that_of_the_package(invoke: Callable[..., Any]) -> None:
    assert invoke("--version").out == f"pyprof2 {pyprof2.__version__}\n"


def test_help_waits_for_no_large_package() -> None:
    code = "import sys; from pyprof2.cli import main; main(['--help']); print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    imported = set(done.stdout.splitlines()[-1].split())
    assert "pyprof2.cli.prof" in imported
    assert imported & {"numpy", "pandas", "pyarrow", "sqlalchemy", "tabulate", "torch"} == set()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param([], 2, id="no command"),
        pytest.param(["prof"], 2, id="no file"),
        pytest.param(["nonsense"], 2, id="no such command"),
        pytest.param(["prof", "--help"], 0, id="help"),
    ],
)
def test_exit_codes_of_the_parser(
    arguments: list[str], code: int, invoke: Callable[..., Any]
) -> None:
    assert invoke(*arguments).code == code


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (errors.TraceError("f: is bad; record again"), 1, "f: is bad; record again"),
        (errors.TableError("a\nb\x1b[31m"), 1, r"a\nb\x1b[31m"),
        (errors.UsageError("no"), 2, "no"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            OSError(28, "No space left on device", "/x"),
            1,
            "/x: No space left on device; check the space and the permissions",
        ),
    ],
    ids=["error", "control characters", "usage", "interrupted", "disk full"],
)
def test_an_error_is_one_line_on_stderr(
    error: BaseException,
    code: int,
    line: str,
    invoke: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("pyprof2.api.run.load", fail)

    result = invoke("prof", "x")

    assert (result.code, result.out, result.err) == (code, "", f"pyprof2: {line}\n")


def test_verbose_shows_where_an_error_came_from(invoke: Callable[..., Any], tmp_path: Path) -> None:
    quiet, verbose = (invoke(*option, "prof", tmp_path / "no") for option in ([], ["-v"]))

    assert "Traceback" not in quiet.err
    assert "Traceback" in verbose.err
    assert verbose.err.splitlines()[-1] == quiet.err.strip()


def _fail(*_: object) -> None:
    msg = "oops"
    raise TypeError(msg)


def test_an_error_of_pyprof2_itself_is_not_blamed_on_the_store(
    invoke: Callable[..., Any],
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = pyprof2.parse(trace, tmp_path / "s.pyprof2")
    monkeypatch.setattr("pyprof2.analysis.summaries.explain.explain", _fail)

    for recording in (store, trace):
        result = invoke("explain", recording, "op:0")

        assert (result.code, result.out) == (1, "")
        assert result.err.startswith("pyprof2: a fault in pyprof2 (TypeError: oops, test_main.py:")
        assert result.err.endswith("); -v shows where\n")
        assert "Traceback" in invoke("-v", "explain", recording, "op:0").err


def test_an_error_on_a_store_with_a_damaged_table_names_the_table(
    invoke: Callable[..., Any],
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = pyprof2.parse(trace, tmp_path / "s.pyprof2")
    monkeypatch.setattr("pyprof2.analysis.summaries.explain.explain", _fail)
    file = store / "stalls" / "rank-0.parquet"  # which explain does not read
    file.write_bytes(b"PAR1")

    result = invoke("explain", store, "op:0")

    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"pyprof2: {file.parent}: damaged (ArrowInvalid); make the store anew with "
        "'pyprof2 parse --force'\n"
    )


def test_a_damaged_store_is_named_by_each_command_that_takes_several(
    invoke: Callable[..., Any],
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, damaged = (pyprof2.parse(trace, tmp_path / f"{name}.pyprof2") for name in "ab")
    (damaged / "stalls" / "rank-0.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr("pyprof2.api.comparison.compare", _fail)
    monkeypatch.setattr("pyprof2.api.batch.batch_model", _fail)

    for words in (
        ["compare", whole, damaged],
        ["batch", f"8={whole}", f"16={damaged}", f"32={whole}"],
    ):
        assert invoke(*words).err.startswith(f"pyprof2: {damaged / 'stalls'}: damaged")
    assert "a fault in pyprof2" in invoke("compare", whole, whole).err


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_stream_is_no_error(trace: Path, tmp_path: Path, closed: str) -> None:
    output = tmp_path / "ops.csv"
    for command in (["prof", trace], ["prof", trace, "--by", "op", "-o", output], ["prof", "no"]):
        done = subprocess.run(
            ["/bin/bash", "-c", f'"$@" {closed}', "-", *COMMAND, *map(str, command)],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip

        assert done.returncode == (command[1] == "no"), done.stderr
        assert "Traceback" not in done.stderr
    assert output.read_text().startswith('"op",')


@pytest.mark.parametrize("place", ["before", "after"])
def test_quiet_is_taken_before_and_after_the_command(
    place: str, invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    use_run(profile_rows({}))
    call = ["prof", "x", "--rank", "5"]
    call = ["-q", *call] if place == "before" else [*call, "-q"]

    assert invoke(*call).err == ""


def test_what_the_terminal_cannot_show_is_escaped(trace: Path) -> None:
    text = trace.read_text().replace("gemm", "gémm")
    trace.write_text(text, encoding="utf-8")

    result = in_a_process(
        "prof", trace, "-c", "kernel", "-w", "70",
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert result.returncode == 0
    assert r"g\xe9mm" in result.stdout


def test_a_closed_pipe_is_no_error(trace: Path) -> None:
    shell = 'set -o pipefail; "$@" | head -n 1'
    for command in (["prof", trace], ["prof", trace, "--csv"], ["--help"]):
        done = subprocess.run(
            ["/bin/bash", "-c", shell, "-", *COMMAND, *map(str, command)],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip

        assert (done.returncode, done.stderr) == (0, ""), command
        assert done.stdout.count("\n") == 1


def test_a_full_disk_is_one_line(trace: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full")
    with full.open("w") as out:
        done = subprocess.run(
            [*COMMAND, "prof", str(trace)],
            stdout=out, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT,
        )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr


def test_no_message_of_the_parser_brings_escapes_to_the_terminal(
    invoke: Callable[..., Any],
) -> None:
    result = invoke("prof", "x", "--format", "\x1b[31m\u202e\x9b")

    assert result.code == 2
    assert result.err.replace("\n", "").isprintable()


def test_a_traceback_brings_no_escapes_to_the_terminal(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    result = invoke("-v", "prof", tmp_path / "\x1b[31m\u202e")

    assert "Traceback" in result.err
    assert result.err.replace("\n", "").isprintable()


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_completion_of_a_shell_knows_the_commands_and_options(
    shell: str, invoke: Callable[..., Any]
) -> None:
    pytest.importorskip("shtab")

    script = invoke("--print-completion", shell).out

    assert all(word in script for word in ("explain", "--source-root", "--csv-safe"))
