"""The summary of a test run says how many of the real traces were tested."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.slow

CONFTEST: Final = Path(__file__).with_name("conftest.py")
APART: Final = re.findall(
    r"^APART := (.+)$", (CONFTEST.parents[1] / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
)[0]
"""What `make test` leaves to other targets."""
TESTS: Final = """
def test_all(kineto_trace):
    assert kineto_trace.exists()

def test_one_again(shared_trace):
    assert shared_trace("kineto/a.json.gz").exists()

def test_absent(shared_trace):
    shared_trace("nsight/absent.sqlite")
"""


@pytest.fixture
def shared_with_two_traces(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = pytester.path / "shared"
    for name in ("kineto/a.json.gz", "kineto/b.json.gz", "nsight/c.sqlite"):
        path = folder / "traces" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setenv("PYPROF2_SHARED", str(folder))
    return folder


def _run(pytester: pytest.Pytester) -> pytest.RunResult:
    shutil.copy(CONFTEST, pytester.path)
    pytester.makepyfile(TESTS)
    return pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider")


@pytest.mark.usefixtures("shared_with_two_traces")
def test_the_summary_counts_each_trace_once_and_none_that_was_skipped(
    pytester: pytest.Pytester,
) -> None:
    result = _run(pytester)

    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(
        ["real traces: 2 of 2 Kineto files tested, 0 of 1 Nsight files tested"]
    )


def test_without_the_traces_their_tests_are_skipped_and_the_summary_says_so(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYPROF2_SHARED", str(pytester.path / "absent"))

    result = _run(pytester)

    result.assert_outcomes(skipped=3)
    result.stdout.fnmatch_lines(["real traces: none tested, no real traces at *absent*"])


ONCE: Final = """
from pathlib import Path

import pytest
from conftest import once

def note(word):
    with open("log", "a") as log:
        log.write(word + " ")

def make(path):
    path.mkdir()
    (path / "part").write_text("whole")
    if not Path("failed").exists():
        Path("failed").touch()
        note("failed")
        raise OSError
    note(str(path))

@pytest.mark.parametrize("number", range(8))
def test_it(number):
    try:
        found = once("thing", make)
    except OSError:
        found = once("thing", make)
    assert (found / "part").read_text() == "whole"
"""


def test_what_tests_share_is_made_once_for_all_workers_and_goes_with_the_run(
    pytester: pytest.Pytester,
) -> None:
    shutil.copy(CONFTEST, pytester.path)
    pytester.makepyfile(ONCE)

    result = pytester.runpytest_subprocess("-n", "2", "-p", "no:cacheprovider")

    result.assert_outcomes(passed=8)
    failed, made = (pytester.path / "log").read_text().split()
    assert failed == "failed"
    assert not Path(made).parent.exists()


PROPERTY: Final = """
import zlib

from hypothesis import given, strategies as st

@given(st.integers(0, 10**6))
def test_property(number):
    with open("seen", "a") as seen:
        print(number, file=seen)
    assert zlib.crc32(str(number).encode()) % 200
"""
"""It fails for one number in two hundred, which none of the hundred of a test's own is."""


def _run_property(pytester: pytest.Pytester) -> tuple[pytest.RunResult, list[str]]:
    seen = pytester.path / "seen"
    seen.unlink(missing_ok=True)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    return result, seen.read_text().split()


def test_a_property_has_the_same_examples_in_every_run(pytester: pytest.Pytester) -> None:
    shutil.copy(CONFTEST, pytester.path)
    pytester.makepyfile(PROPERTY)

    (first, numbers), (_, again) = _run_property(pytester), _run_property(pytester)

    first.assert_outcomes(passed=1)
    assert numbers == again
    assert len(set(numbers)) > 10
    assert not (pytester.path / "examples").exists()


def test_fuzzing_keeps_what_it_finds_where_the_tests_find_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(CONFTEST, pytester.path)
    pytester.makepyfile(PROPERTY)
    monkeypatch.setenv("PYPROF2_FUZZ", "1")
    found, numbers = _run_property(pytester)
    monkeypatch.delenv("PYPROF2_FUZZ")

    result, again = _run_property(pytester)

    found.assert_outcomes(failed=1)
    result.assert_outcomes(failed=1)
    assert again[0] == numbers[-1]


KEPT: Final = """
import pytest

@pytest.mark.kept("{}")
@pytest.mark.parametrize("name", "abc")
def test_each(name): pass
"""


def test_what_is_slow_is_for_releases_but_where_every_run_needs_it(
    pytester: pytest.Pytester,
) -> None:
    shutil.copy(CONFTEST, pytester.path)
    marked = "import pytest\n\n@pytest.mark.{}\ndef test_{}(): pass\n"
    other = pytester.mkdir("tests") / "cli"
    other.mkdir()
    (other / "test_demo.py").write_text(marked.format("minutes", "demo"))
    pytester.makepyfile(
        test_a=marked.format("minutes", "slow"),
        test_b=marked.format("alone", "measures"),
        test_c="def test_quick(): pass\n",
        test_d=KEPT.format("b"),
        test_e=marked.format("slow", "seconds"),
    )
    options = ("-p", "no:randomly", "-p", "no:cacheprovider", "-v", "-m")

    found = [
        re.findall(
            r"::(test_\S+) PASSED", pytester.runpytest_subprocess(*options, which).stdout.str()
        )
        for which in (f"not ({APART})", f"({APART}) and not release", "release")
    ]

    assert found == [
        ["test_quick", "test_each[b]"], ["test_seconds", "test_demo"],
        ["test_slow", "test_measures", "test_each[a]", "test_each[c]"],
    ]  # fmt: skip


def test_a_parameter_that_is_kept_has_to_be_there(pytester: pytest.Pytester) -> None:
    shutil.copy(CONFTEST, pytester.path)
    pytester.makepyfile(KEPT.format("d"))

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*test_each: no parameters are called as in `kept`*")
