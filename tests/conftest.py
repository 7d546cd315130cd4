"""What every test can use: the real traces, a fixed seed, a count of the traces that ran."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import shutil
import signal
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hypothesis
import pytest
from hypothesis.database import DirectoryBasedExampleDatabase, ReadOnlyDatabase

import pyprof2.api.run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from _pytest.mark import ParameterSet
    from playwright.sync_api import Browser

ROOT: Final = Path(__file__).resolve().parent.parent
SHARED: Final = Path(os.environ.get("PYPROF2_SHARED") or ROOT.parent / "shared")
WHY_NOT_SHARED: Final = f"no real traces at {SHARED}: PYPROF2_SHARED names their folder"
SHARED_TRACES: Final = {
    "Kineto": sorted((SHARED / "traces" / "kineto").glob("*.json.gz")),
    "Nsight": sorted((SHARED / "traces" / "nsight").glob("*.sqlite")),
}
"""The real traces that are there, by format."""
MORE_TRACES: Final = sorted((SHARED / "traces" / "more").glob("*/*.*"))
"""Further ones, which fewer tests read."""

pytest_plugins: Final = ("pytester",)

_CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
_RUN: Final = "PYPROF2_TESTS_OF_THIS_RUN"
_TRACE_PROPERTY: Final = "real trace"
_TAKE_MINUTES: Final = (
    "/tests/analysis/costs/test_extensions.py", "/tests/analysis/costs/test_mutations.py",
    "/tests/analysis/job/test_generated.py", "/tests/analysis/job/test_late_hosts.py",
    "/tests/analysis/job/test_segments.py",
    "/tests/analysis/summaries/advice/test_ranks.py", "/tests/cli/test_capture.py",
    "/tests/cli/test_demo.py", "/tests/cli/test_entry_points.py", "/tests/cli/test_examples.py",
    "/tests/cli/test_own_lines.py", "/tests/cli/test_real_traces.py",
    "/tests/capture/test_sweep.py",
    "/tests/lsp/test_recording_anew.py", "/tests/lsp/test_rules.py", "/tests/lsp/test_server.py",
    "/tests/nvtx/test_compile.py", "/tests/nvtx/test_distributed.py",
    "/tests/parsers/test_snapshot_opcodes.py",
    "/tests/reports/page/test_dials_editor.py", "/tests/reports/page/test_document.py",
    "/tests/reports/page/test_profile.py", "/tests/reports/test_perfetto.py",
    "/tests/test_bombs.py", "/tests/store/test_clusters.py", "/tests/test_real_traces.py",
)  # fmt: skip
"""Files whose tests start programs, one after another, or read every real trace many times."""
_EVERY_RUN: Final = (
    "/tests/cli/test_demo.py", "/tests/cli/test_own_lines.py", "/tests/journeys/test_page.py",
    "/tests/journeys/test_largest_batch.py", "/tests/lsp/test_rules.py",
    "/tests/reports/page/test_browser_first.py",
)  # fmt: skip
"""Slow files that `make test-slow` runs: one each for the browser, the profilers, the editor."""
_TOGETHER: Final = (
    "/tests/analysis/costs/test_mutations.py", "/tests/analysis/time/test_planted_causes.py",
    "/tests/nvtx/test_distributed.py", "/tests/store/test_clusters.py", "/tests/lsp/test_server.py",
    "/tests/reports/page/test_dials_editor.py", "/tests/reports/page/test_dials_page.py",
)  # fmt: skip
"""Files whose tests share what is dear to make: one worker runs them, as it runs all of `nsys`."""
_ALIKE: Final = {
    "rn50_v100_w0": "dlrm_v100_w0", "hta_ns_v100": "dlrm_v100_w0",
    "hta_df_index_v100_ddp": "dlrm_v100_w0", "hta_diff_control_a100": "hta_sampled_r0",
    "tl_owlv2_h100": "tl_nsfwvit_h100", "tl_bertsmall_h100": "tl_nsfwvit_h100",
    "tl_sdpa_03": "tl_sdpa_01", "tl_elem_01": "tl_sdpa_01", "tl_moe5_b300": "tl_moe2_b300",
    "hta_simple_add": "hta_triton", "part_a100_b2": "part_a100_b256",
    "part_a100_b16": "part_a100_b256", "part_a100_b64": "part_a100_b256",
}  # fmt: skip
"""Real traces, large ones above all, and of each one that is like it in vendor and in what was
recorded: tests that take every real trace take the former in `make test-release` alone.
"""
_NSYS_FAILED: Final = [
    "End of file", "sem_open", "Local Endpoint is not available", "tag_message",
    "nsys profile failed",
]  # fmt: skip

# The examples are the same in every run, so a red run can be repeated: those of a fixed seed, and
# what `make fuzz` has found, which looks for others. The latter are read only while the test is the
# same text, so what is mended is written into it, as `hypothesis.example`.
EXAMPLES: Final = Path(__file__).with_name("examples")
_FUZZES: Final = bool(os.environ.get("PYPROF2_FUZZ"))
_FOUND: Final = DirectoryBasedExampleDatabase(EXAMPLES)
hypothesis.settings.register_profile(
    "test", deadline=None, max_examples=20, database=ReadOnlyDatabase(_FOUND)
)
hypothesis.settings.register_profile(
    "fuzz", deadline=None, max_examples=2000, database=_FOUND, print_blob=True
)
# Threads of one test's torch that wait for work, spinning, take the cores of other tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Only tests of it wait for a measurement; the marks of the others are the same on every machine.
os.environ.setdefault("PYPROF2_CPU_PEAKS", "0")
os.environ.setdefault("PYPROF2_ENERGY", "0")
hypothesis.settings.load_profile("fuzz" if _FUZZES else "test")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Make a folder for what the workers of this run share; it goes when the run ends.

    Programs that the tests start are ended by Ctrl-C, which shells turn off for what they run in
    the background, and a program has from the one that starts it.
    """
    # The same order and numbers in every run; --randomly-seed=N tries others.
    if getattr(config.option, "randomly_seed", None) == "default":
        config.option.randomly_seed = 2026
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="pyprof2-tests-")
        os.environ[_RUN] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Let one process of this machine at a time do something."""
    import fcntl

    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def once(name: str, make: Callable[[Path], object]) -> Path:
    """Return a path that the first worker of this run that asks for it has made, for all of them.

    Args:
        name: of a file or folder, a distinct one for each thing.
        make: makes it at the path that it gets; where it fails the next one tries again.
    """
    path = Path(os.environ[_RUN], name)
    made = path.with_name(f"{name}.made")
    with _alone(path.with_name(f"{name}.lock")):
        if not made.exists():
            shutil.rmtree(path, ignore_errors=True)
            make(path)
            made.touch()
    return path


@functools.cache
def _store_of(trace: Path) -> Path:
    name = f"{trace.parent.name}-{trace.name}.pyprof2"
    return once(name, functools.partial(pyprof2.api.run.parse, trace))


_load: Final = pyprof2.api.run.load


@functools.wraps(_load)
def _load_once(path: Path | str | Sequence[Path | str], **options: Any) -> pyprof2.api.run.Run:
    """Load a trace; a real one, which some twenty tests look at, is parsed once in a process."""
    if not isinstance(path, (str, Path)):
        return _load(path, **options)
    trace = Path(path)
    is_real = trace.is_file() and trace.is_relative_to(SHARED / "traces")
    if is_real and options.get("source_root") is None:
        return _load(_store_of(trace), **options)
    return _load(path, **options)


pyprof2.api.run.load = _load_once


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run tests of `nsys` one at a time: two of them at once fail in each other's sessions."""
    if item.get_closest_marker("nsys") is None:
        return (yield)
    with _alone(Path(tempfile.gettempdir()) / "pyprof2-nsys-tests.lock"):
        return (yield)


def of_each_kind(traces: Iterable[str]) -> list[ParameterSet]:
    """Return real traces as what a test takes; `make test` runs it for one of each kind."""
    return [
        pytest.param(trace, id=name, marks=pytest.mark.release if Path(name).name in _ALIKE else ())
        for trace in traces
        for name in [trace.split(".")[0]]
    ]


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of the real traces and of what they must give; skip without it."""
    if not SHARED.is_dir():
        pytest.skip(WHY_NOT_SHARED)
    return SHARED


@pytest.fixture
def shared_trace(request: pytest.FixtureRequest, shared: Path) -> Callable[[str], Path]:
    """Return a function from `"kineto/rn50_v100_w0.json.gz"` to the path of that real trace.

    The summary counts every trace that a test asked for and that was not skipped.
    """

    def path_of(name: str) -> Path:
        path = shared / "traces" / name
        if not path.exists():
            pytest.skip(f"no real trace {path}")
        request.node.user_properties.append((_TRACE_PROPERTY, str(path)))
        return path

    return path_of


@pytest.fixture
def kineto_trace(request: pytest.FixtureRequest, shared_trace: Callable[[str], Path]) -> Path:
    """Return one real Kineto trace; a test that takes this runs once for each."""
    return shared_trace(f"kineto/{request.param}")


@pytest.fixture
def nsight_trace(request: pytest.FixtureRequest, shared_trace: Callable[[str], Path]) -> Path:
    """Return one real Nsight Systems export; a test that takes this runs once for each."""
    return shared_trace(f"nsight/{request.param}")


@pytest.fixture
def real_trace(request: pytest.FixtureRequest, shared_trace: Callable[[str], Path]) -> Path:
    """Return one real trace of any format; a test that takes this runs once for each."""
    return shared_trace(request.param)


_EVERY_TRACE: Final = [path for paths in (*SHARED_TRACES.values(), MORE_TRACES) for path in paths]
_TRACES_OF: Final = {
    "real_trace": [str(path.relative_to(SHARED / "traces")) for path in _EVERY_TRACE]
} | {
    f"{kind.lower()}_trace": [path.name for path in paths] for kind, paths in SHARED_TRACES.items()
}
"""What a test may take, by the name of its fixture."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes one of the traces once for each that is there."""
    for fixture, names in _TRACES_OF.items():
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, of_each_kind(names or ["none"]), indirect=True)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Return a browser without a window; skip where there is none.

    It is here because a process can have only one: tests of the page and of VS Code share it.
    """
    api = pytest.importorskip("playwright.sync_api", reason="no playwright")
    path = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if path is None:
        pytest.skip("no Chromium to open pages in: apt-get install chromium")
    from tests.reports.page.opened import LAUNCH

    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=LAUNCH, ignore_default_args=["--hide-scrollbars"]
        )
        yield browser
        browser.close()


@pytest.hookimpl(tryfirst=True)  # `-m` and xdist read the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use real traces or a browser, so that `-m real_trace` selects them.

    Tests of properties get the seed that they have in every run, but for `make fuzz`.
    What is not worth every run is marked `release`, with `kept` all parameters but some.
    A test runs again where `nsys` lost its own daemon, as happens on a busy machine: version 2022.4
    then prints one of `_NSYS_FAILED`, and starts no program; `nsys_runs.py` says the last for it.
    """
    for item in items:
        test: Any = getattr(item, "obj", None)
        if hypothesis.is_hypothesis_test(test) and not _FUZZES:
            # What `hypothesis.seed` does, which also takes the kept examples away.
            test._hypothesis_internal_use_seed = 0
        if {"shared", "shared_trace"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real_trace)
        if {"chromium", "web_modules"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.pages)
        if item.path.as_posix().endswith(_TAKE_MINUTES):
            item.add_marker(pytest.mark.minutes)
        if item.path.as_posix().endswith(_TOGETHER):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        if item.get_closest_marker("nsys") is not None:
            item.add_marker(pytest.mark.xdist_group("nsys"))
            item.add_marker(pytest.mark.flaky(reruns=3, only_rerun=_NSYS_FAILED))
        is_slow = any(map(item.get_closest_marker, ("pages", "minutes")))
        is_for_every_run = item.path.as_posix().endswith(_EVERY_RUN)
        if item.get_closest_marker("alone") or (is_slow and not is_for_every_run):
            item.add_marker(pytest.mark.release)
    _leave_out(items)


def _leave_out(items: list[pytest.Item]) -> None:
    """Mark `release` what has none of the parameters that its mark `kept` names."""
    left_out: defaultdict[Callable[..., object], list[bool]] = defaultdict(list)
    for item in items:
        kept = item.get_closest_marker("kept")
        if isinstance(item, pytest.Function) and kept is not None:
            left_out[item.function].append(item.callspec.id not in kept.args)
            if left_out[item.function][-1]:
                item.add_marker(pytest.mark.release)
    for function, each in left_out.items():
        if len(each) > 1 and all(each):
            msg = f"{function.__name__}: no parameters are called as in `kept`"
            raise pytest.UsageError(msg)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the collector of garbage from walking through ten thousand tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many of the real traces were tested."""
    tested = set(_tested_traces(terminalreporter))
    terminalreporter.ensure_newline()
    if not SHARED.is_dir():
        terminalreporter.write_line(f"real traces: none tested, {WHY_NOT_SHARED}")
        return
    counts = [
        f"{len(tested & {str(path) for path in paths})} of {len(paths)} {kind} files tested"
        for kind, paths in SHARED_TRACES.items()
    ]
    terminalreporter.write_line(f"real traces: {', '.join(counts)}")


def _tested_traces(terminalreporter: pytest.TerminalReporter) -> Iterator[str]:
    for outcome in ("passed", "failed", "xfailed", "xpassed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == _TRACE_PROPERTY:
                    yield str(value)
