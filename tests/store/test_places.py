"""Paths, addresses and standard input, as users name them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pyprof2.store.places import STDIN, Address, folder_of, name_of, place


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/runs/net.json.gz",
        "gs://bucket/a//b.json",
        "abfs://container@account.dfs.core.windows.net/net.json",
        "hdfs:///runs/net.json",
    ],
)
def test_an_address_stays_what_it_is(text: str) -> None:
    found = place(text)

    assert isinstance(found, Address)
    assert (str(found), found.url, f"{found}") == (text, text, text)
    assert found.name == text.rpartition("/")[2]
    assert not found.exists()
    assert not found.is_dir()


def test_secrets_are_no_part_of_the_text() -> None:
    url = "https://me:secret@host/runs/net.json.gz?signature=a/b"

    found = place(url)

    assert isinstance(found, Address)
    assert found.url == url
    assert str(found) == "https://host/runs/net.json.gz"
    assert found.name == "net.json.gz"
    assert str(found.with_name("net.html")) == "https://host/runs/net.html"


def test_what_is_derived_from_an_address_is_one_too() -> None:
    found = place("s3://bucket/runs/net.json.gz")

    assert str(found.parent / "other.json") == "s3://bucket/runs/other.json"
    assert found == pickle.loads(pickle.dumps(found))  # noqa: S301 -- made here


@pytest.mark.parametrize("text", ["net.json", "C:/runs/net.json", "a:b/c", "://x", "runs//net"])
def test_a_path_is_no_address(text: str) -> None:
    assert type(place(text)) is type(Path(text))


def test_a_file_may_be_named_as_an_address() -> None:
    assert place("file:///runs/net.json") == Path("/runs/net.json")
    assert type(place("file:///runs/net.json")) is type(Path())


def test_what_belongs_beside_something_far_away_goes_to_the_current_folder() -> None:
    assert folder_of(place("s3://bucket/net.json")) == folder_of(STDIN) == Path()
    assert folder_of(Path("runs/net.json")) == Path("runs")
    assert name_of(STDIN) == "stdin"
