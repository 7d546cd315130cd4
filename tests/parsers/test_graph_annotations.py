"""Annotations of graphs: a pickle is read without running anything of it, or refused."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.api.run import load
from pyprof2.errors import TraceError
from pyprof2.parsers.graph_annotations import read_annotations
from tests.kineto_events import kernel, launch, rows, trace

if TYPE_CHECKING:
    from pathlib import Path

NODE = (7 << 32) + 3


def notes(**nodes: Any) -> defaultdict[Any, list[Any]]:
    """Return what torch pickles; a node's name is that of its number."""
    return defaultdict(list, {NODE + int(name[1:]): value for name, value in nodes.items()})


class Hostile:
    """Would make a folder where it is unpickled as it asks to be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_read(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "notes.pkl"
    found = notes(
        n0=["attn"], n1=[{"layer": 3, "phase": "decode"}], n2=[{"layer": 1}, {"layer": 2}]
    )
    path.write_bytes(pickle.dumps(found, protocol))

    assert read_annotations(path) == {
        NODE: "attn", NODE + 1: "layer=3, phase=decode", NODE + 2: "layer=2",
    }  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({1: ["x"]}, id="a plain dictionary"),
        pytest.param(defaultdict(dict, {1: {}}), id="another factory"),
        pytest.param(OrderedDict({1: ["x"]}), id="another class"),
        pytest.param(defaultdict(list, {1: [{1, 2}]}), id="a set"),
        pytest.param(defaultdict(list, {"x": ["x"]}), id="an id that is text"),
        pytest.param(defaultdict(list, {1: [defaultdict(list)]}), id="one inside"),
        pytest.param(defaultdict(list, {1: [1 << 80]}), id="a number too long"),
        pytest.param(defaultdict(list, {1: [list]}), id="a class"),
    ],
)
def test_what_torch_does_not_write_is_refused(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "notes.pkl"
    path.write_bytes(pickle.dumps(content))

    with pytest.raises(TraceError, match="not read as annotations"):
        read_annotations(path)


def test_nothing_of_a_file_runs(tmp_path: Path) -> None:
    path = tmp_path / "notes.pkl"
    for content in (Hostile(tmp_path / "made"), notes(n0=[Hostile(tmp_path / "made")])):
        path.write_bytes(pickle.dumps(content))
        with pytest.raises(TraceError):
            read_annotations(path)
    path.write_bytes(pickle.dumps(notes(n0=["x"]))[:-9])
    with pytest.raises(TraceError):
        read_annotations(path)
    assert not (tmp_path / "made").exists()


def test_a_node_that_is_noted_has_that_as_its_range(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    recording = trace(
        folder / "0_decode.json", launch(0, 7, name="cudaGraphLaunch"),
        [kernel(20 + 2 * at, 1, 7, {"graph node id": NODE + at}) for at in range(2)],
    )  # fmt: skip
    path = tmp_path / "kernel_annotations_rank0_1234.pkl"
    path.write_bytes(pickle.dumps(notes(n1=["layer 3"])))

    assert rows(load(recording).table("kernels"), "range", "op") == [
        (None, None), ("layer 3", None),
    ]  # fmt: skip

    path.write_bytes(b"no pickle")
    assert rows(load(recording).table("kernels"), "range") == [None, None]
