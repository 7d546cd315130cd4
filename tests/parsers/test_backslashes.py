"""Paths of Windows whose backslashes are written bare mean what they say."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Final

import pytest

from pyprof2.cli import main
from pyprof2.parsers import kineto
from pyprof2.parsers._json_repair import escape_backslashes, restore_backslashes
from pyprof2.problems import BARE_BACKSLASHES, EVENT_REPAIRED
from tests.kineto_events import Event, frame, json_text, launched, op

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.recording import Recording

ROOTS: Final = [
    "C:\\Users\\me\\", "C:\\temp\\runs\\", "D:\\new\\bin\\fast\\", "d:\\users\\beef\\",
    "\\\\server\\share\\", "C:\\ubeef\\xbox\\",
]  # fmt: skip


def calls(root: str, count: int = 3) -> list[Event]:
    """An op in a frame of torch's, in one of the user's."""
    events: list[Event] = []
    for number in range(count):
        ts = 100 * number
        events += [
            frame(f"{root}train.py(31): <module>", ts, 90),
            frame(f"{root}nets\\unet.py(12): forward", ts + 5, 80),
            frame("torch\\nn\\functional.py(99): relu", ts + 8, 70),
            op("aten::relu", ts + 10, 40), *launched(ts + 12, number + 1, at=ts + 60, dur=5),
        ]  # fmt: skip
    return events


def bare(text: bytes) -> bytes:
    return text.replace(b"\\\\", b"\\")


def read(folder: Path, text: bytes, scanner: str, name: str = "trace.json") -> Recording:
    path = folder / name
    path.write_bytes(text)
    spool = folder / f"{scanner}-{len(list(folder.iterdir()))}"
    spool.mkdir()
    (found,) = kineto.read_recordings(path, spool, scanner=scanner)
    return found


def names(recording: Recording) -> list[str]:
    return sorted(recording.spool.texts["ranges"]["name"])


@pytest.mark.parametrize("scanner", kineto.SCANNERS)
@pytest.mark.parametrize("root", ROOTS)
def test_bare_backslashes_give_the_paths_that_escaped_ones_give(
    tmp_path: Path, root: str, scanner: str
) -> None:
    text = json_text(*calls(root), with_stack=1)

    escaped, written_bare = (read(tmp_path, each, scanner) for each in (text, bare(text)))

    assert names(written_bare) == names(escaped)
    assert written_bare.spool.counts == escaped.spool.counts
    assert written_bare.problems == {BARE_BACKSLASHES: 1}
    assert not escaped.problems


@pytest.mark.parametrize("scanner", kineto.SCANNERS)
def test_a_backslash_that_escapes_nothing_late_in_a_long_file_says_it_of_all(
    tmp_path: Path, scanner: str
) -> None:
    early, late = calls("C:\\temp\\", 16_000), calls("C:\\Users\\", 1)
    text = gzip.compress(bare(json_text(*early, *late)), 1)

    found = read(tmp_path, text, scanner, "trace.json.gz")

    assert found.spool.counts["ops"] == 16_001
    assert names(found) == sorted(
        f"{root}{file}" for root, file in [
            ("C:\\temp\\", "train.py(31): <module>"), ("C:\\temp\\", "nets\\unet.py(12): forward"),
            ("C:\\Users\\", "train.py(31): <module>"),
            ("C:\\Users\\", "nets\\unet.py(12): forward"),
            ("torch\\nn\\", "functional.py(99): relu"),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("scanner", kineto.SCANNERS)
def test_paths_that_happen_to_be_valid_are_known_by_their_names(
    tmp_path: Path, scanner: str
) -> None:
    events = [frame("torch\\nn\\functional.py(99): relu", 0, 50), op("aten::relu", 10, 5)]

    found = read(tmp_path, bare(json_text(*events)), scanner)

    assert names(found) == ["torch\\nn\\functional.py(99): relu"]


@pytest.mark.parametrize("scanner", kineto.SCANNERS)
def test_one_lost_backslash_in_an_escaped_file_is_damage(tmp_path: Path, scanner: str) -> None:
    text = json_text(*calls("C:\\Users\\me\\"))
    damaged = text.replace(b"nets\\\\unet", b"nets\\unet", 1).replace(
        b"Users\\\\me", b"Users\\me", 1
    )

    found = read(tmp_path, damaged, scanner)

    assert found.problems[BARE_BACKSLASHES] == 0
    assert found.problems[EVENT_REPAIRED] >= 1
    assert "C:\\Users\\me\\nets\\unet.py(12): forward" in names(found)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        (rb'"C:\temp"', rb'"C:\\temp"'),
        (rb'"say \"a\""', rb'"say \"a\""'),
        (rb'"\\server\a"', rb'"\\\\server\\a"'),
        (rb'"ends\\"', rb'"ends\\\\"'),
        (rb'"\\\"', rb'"\\\\\"'),
    ],
)
def test_backslashes_are_escaped_and_restored(text: bytes, escaped: bytes) -> None:
    assert escape_backslashes(text) == escaped
    assert restore_backslashes(escaped) == text


def test_no_output_has_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(bare(json_text(*calls("C:\\temp\\new\\"), with_stack=1)))

    for command in (
        ["prof", "--by", "source"],
        ["check"],
        ["advise"],
        ["lines"],
        ["prof", "--csv"],
    ):
        assert main([*command, str(path)]) == 0
        assert {c for c in capsys.readouterr().out if ord(c) < 32} <= {"\n", "\r"}
