"""The tables on the page are those of `prof`: read from the file, summed up row by row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

from pyprof2.api.run import load
from pyprof2.cli import main
from tests.reports.page.reader import document_of, profile, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

TRACES: Final = (
    "kineto/rn50_v100_w0.json.gz",
    "kineto/tl_owlv2_h100.json.gz",
    "kineto/tl_qwen_mi300.json.gz",
    "kineto/tl_moe2_b300.json.gz",
    "nsight/h100_2gpu_1s.sqlite",
)
KEYS: Final = {
    "name": "kernel", "op": "op", "signature": "signature", "layer": "layer", "source": "source",
    "range": "range", "direction": "direction", "step": "step", "rank": "rank",
    "category": "category",
}  # fmt: skip
INTEGERS: Final = ("count", "op_calls", "time_ns", "min_ns", "max_ns", "flops", "bytes")


def page_of(path: Path, folder: Path, *options: str) -> dict[str, Any]:
    file = folder / "page.html"
    assert main(["report", str(path), "-o", str(file), "--force", *options]) == 0
    return document_of(file)


def expected(run: Run, axis: str, **selection: Any) -> dict[Any, dict[str, Any]]:
    """Return what `prof` prints, by key; null as None."""
    frame = run.profile(by=axis, **selection)
    key, *names = frame.columns
    found = {}
    for record in frame.to_dict("records"):
        name = record[key]
        name = None if name == "(none)" or pd.isna(name) else name
        found[name] = {n: None if pd.isna(record[n]) else record[n] for n in names}
    return found


def assert_equal(found: dict[Any, Any], wanted: dict[Any, Any]) -> None:
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        assert found[key].keys() == row.keys()
        for name, value in row.items():
            if name in INTEGERS or value is None:
                assert found[key][name] == value, (key, name)
            else:
                assert math.isclose(found[key][name], value, rel_tol=1e-9), (key, name)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], tuple[Run, Any]]:
    """Return a function from a recording to its run and the data of its page, made once."""
    made: dict[Path, tuple[Run, Any]] = {}

    def page(path: Path) -> tuple[Run, Any]:
        if path not in made:
            run = load(path)
            folder = tmp_path_factory.mktemp("page")
            made[path] = run, page_of(run.path, folder)
        return made[path]

    return page


@pytest.mark.parametrize("axis", KEYS)
@pytest.mark.parametrize("name", TRACES)
def test_sums_along_an_axis_are_those_of_prof(
    name: str,
    axis: str,
    shared_trace: Callable[[str], Path],
    pages: Callable[[Path], tuple[Run, Any]],
) -> None:
    run, document = pages(shared_trace(name))

    assert_equal(profile(document, lambda row: row[KEYS[axis]]), expected(run, axis))


@pytest.mark.parametrize("axis", ["op", "name", "layer", "category"])
@pytest.mark.parametrize("name", TRACES)
def test_a_selection_is_that_of_prof(
    name: str,
    axis: str,
    shared_trace: Callable[[str], Path],
    pages: Callable[[Path], tuple[Run, Any]],
) -> None:
    run, document = pages(shared_trace(name))
    cube = rows_of(document["cube"])
    last = {key: cube[-1][key] for key in ("rank", "step", "direction")}
    if last["step"] is None:
        del last["step"]
    for key, value in last.items():
        option = ["(none)" if value is None else value] if key == "direction" else value
        found = profile(document, lambda row: row[KEYS[axis]], lambda r: r[key] == value)  # noqa: B023
        assert_equal(found, expected(run, axis, **{key: option}))
    kernels = profile(
        document,
        lambda row: row[KEYS[axis]],
        lambda row: row["category"] not in ("memcpy", "memset"),
    )
    assert_equal(kernels, expected(run, axis, copies=False))
