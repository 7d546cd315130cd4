"""`pyprof2 sql`: each recipe of the documentation gives what the command beside it gives."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

import pyprof2
from docs import examples
from pyprof2.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("duckdb")

PAGE: Final = Path(__file__).resolve().parent.parent.parent / "docs" / "sql.rst"
RECIPES: Final = re.findall(
    r"^\*\*(.+?)\*\*.*?^\.\. generated: \$ pyprof2 sql (.+?)$",
    PAGE.read_text(),
    re.DOTALL | re.MULTILINE,
)


def _work(run: Any) -> Any:
    return pd.concat([run.kernels, run.copies])


def _of_one_op(run: Any) -> Any:
    rows = run.profile("op")
    return rows[~rows["op"].str.startswith("(")]


def _of_torch(run: Any) -> Any:
    rows = run.profile("op")
    return rows[rows["op"].str.startswith("aten::")]


def _unused(run: Any) -> Any:
    rows = _work(run)
    rows = rows[(rows["tensor_core"] == "no") & rows["tensor_core_eligible"].eq(other=True)]
    return rows.groupby("op", observed=True, as_index=False)["dur_ns"].sum()


def _steps(run: Any) -> Any:
    rows = run.steps
    return rows.assign(idle_pct=100 * rows["idle_ns"] / rows["dur_ns"])[
        ["step", "dur_ns", "idle_ns", "idle_pct"]
    ]


def _copied(run: Any) -> Any:
    rows = run.copies.groupby("copy_kind", observed=True, as_index=False)
    rows = rows.agg(count=("bytes", "size"), bytes=("bytes", "sum"), dur_ns=("dur_ns", "sum"))
    return rows.assign(gbps=rows["bytes"] / rows.pop("dur_ns"))


def _queued(run: Any) -> Any:
    rows = run.kernels.assign(queued_ns=run.kernels["start_ns"] - run.kernels["launch_ns"])
    return rows.groupby("category", observed=True, as_index=False)["queued_ns"].median()


def _collectives(run: Any) -> Any:
    rows = run.table("collectives").to_pandas().groupby(["rank", "kind"], observed=True)
    return rows.agg(
        count=("wait_ns", "size"), wait_ns=("wait_ns", "sum"), transfer_ns=("transfer_ns", "sum")
    ).reset_index()


ORACLES: Final[dict[str, Callable[[Any], Any]]] = {
    "Where does the time of devices go?": _of_one_op,
    "Which kernels?": lambda run: run.profile("name"),
    "Which layers, forward and backward?": lambda run: run.profile(["layer", "direction"]),
    "How near to the roof?": lambda run: run.profile("category"),
    "Which work could use Tensor Cores and does not?": _unused,
    "How long is a step, and how much of it is idle?": _steps,
    "Why was the device idle?": lambda run: run.idle_profile("cause"),
    "Which line made it wait?": lambda run: run.idle_profile("source"),
    "What is copied, and how fast?": _copied,
    "How long does a kernel wait behind its launch?": _queued,
    "Which ops take the host's time?": _of_torch,
    "Who waits in collectives?": _collectives,
}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    examples.write_recordings(folder)
    return folder


def test_each_recipe_has_an_oracle() -> None:
    assert [title for title, _ in RECIPES] == list(ORACLES)


@pytest.mark.parametrize(("title", "words"), RECIPES)
def test_a_recipe_gives_what_pyprof2_gives(title: str, words: str, recordings: Path) -> None:
    name, query = shlex.split(words)
    run = pyprof2.load(recordings / name)
    query = re.sub(r" LIMIT \d+$", "", query)

    found = run.sql(query).astype(object)

    oracle = ORACLES[title](run).rename(
        columns={"dur_ns": "time_ns"} if "dur_ns" not in found else {}
    )
    oracle = oracle[list(found)].astype(object)
    oracle = oracle.where(oracle != "(none)", None)
    assert len(found) > 1 or title == "What is copied, and how fast?"
    assert len(found) == len(oracle)
    for row, expected in zip(_rows(found), _rows(oracle), strict=True):
        for cell, right in zip(row, expected, strict=True):
            is_quotient = isinstance(right, float)
            assert cell == (pytest.approx(right, rel=1e-12) if is_quotient else right)


def _rows(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows in the order of what is no quotient."""
    rows = [
        tuple(None if pd.isna(cell) else cell for cell in row)
        for row in frame.itertuples(index=False, name=None)
    ]
    return sorted(rows, key=lambda row: str([c for c in row if not isinstance(c, float)]))


def test_without_a_query_the_tables_are_listed(
    recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", str(recordings / "gpu.pyprof2")]) == 0

    text = capsys.readouterr().out
    assert re.search(r"^work +One row per row of `activities`", text, re.MULTILINE)
    assert re.search(r"^steps +One row per device and window", text, re.MULTILINE)


def test_a_table_for_people_says_that_there_are_more_rows(
    recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["sql", str(recordings / "gpu.pyprof2"), "SELECT kernel_id FROM kernels"]

    assert main(asked) == 0
    assert capsys.readouterr().out.endswith(
        "the first 100 rows; more with --top N, all with -o FILE.csv\n"
    )
    assert main([*asked, "--format", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 239


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT nonsense FROM kernels", "nonsense"), ("DROP VIEW kernels", "not one SELECT"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_said_in_one_line(
    query: str, says: str, recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", str(recordings / "gpu.pyprof2"), query]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert os.fspath(recordings) not in line
