"""Formats are told apart by content, then by a suffix that only one has."""

from __future__ import annotations

import pytest

from pyprof2.parsers.formats import FORMATS, find_format, in_words, stem_of

SQLITE = b"SQLite format 3\x00"


@pytest.mark.parametrize(
    ("name", "head", "format_name"),
    [
        ("x.json", b'{"traceEvents": []}', "kineto"),
        ("x", b"\x1f\x8b\x08", "kineto"),
        ("x.sqlite", b" \n[", "kineto"),
        ("x.json", SQLITE, "nsight"),
        ("x", b"NVIDIA Tegra Profiler Report", "nsight"),
        ("x.nsys-rep", b"nonsense", "nsight"),
        ("x.json", b"nonsense", None),
        ("x.gz", b"", None),
    ],
)
def test_content_comes_before_the_name(name: str, head: bytes, format_name: str | None) -> None:
    found = find_format(name, head)

    assert (found and found.name) == format_name


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("net.json", "net"),
        ("net.json.gz", "net"),
        ("net.1.pt.trace.json.gz", "net.1"),
        ("net.pt.trace.json", "net"),
        ("net.gz", "net"),
        ("net.sqlite", "net"),
        ("net.nsys-rep", "net"),
        ("net.v2", "net.v2"),
        (".json", ".json"),
    ],
)
def test_a_store_is_named_after_its_recording(name: str, stem: str) -> None:
    assert stem_of(name) == stem


def test_every_format_has_a_name_of_its_own_and_a_reader() -> None:
    assert len({known.name for known in FORMATS}) == len(FORMATS)
    for known in FORMATS:
        reader = known.load_reader()
        assert callable(reader.read_recordings)
        assert callable(reader.holds_work)


def test_a_list_in_words() -> None:
    assert in_words(["a", "b", "c"]) == "a, b or c"
    assert in_words(["a"]) == "a"
