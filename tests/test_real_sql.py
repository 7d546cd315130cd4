"""Our answers on real recordings, and those of SQL that shares no code with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

from pyprof2.analysis.time.cause_names import NAMES
from pyprof2.api import run_time
from pyprof2.api.comparison import compare
from pyprof2.api.run import load
from pyprof2.reports.comparison import parts_by
from tests.conftest import MORE_TRACES, SHARED_TRACES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyprof2.api.comparison import Compared
    from pyprof2.api.run import Run

duckdb = pytest.importorskip("duckdb")
pytestmark = pytest.mark.slow

ORACLES: Final = Path(__file__).parent / "oracles"
AXES: Final = {
    "op": "op", "layer": "layer", "direction": "direction", "source": "source", "name": "kernel",
    "category": "category", "signature": "signature", "step": "step", "stream": "stream",
}  # fmt: skip
"""The column of each axis."""
WHOLE: Final = ("count", "time_ns", "min_ns", "max_ns", "flops", "bytes")
SHARES: Final = ("share_pct", "mean_ns", "tensor_core_pct", "costed_pct")


def _told(cell: Any) -> Any:
    return None if pd.isna(cell) else cell


def profile_of(run: Run, axis: str) -> dict[Any, dict[str, Any]]:
    """Return the rows of a profile by their key; those of no owner of their own are one sum."""
    found = {}
    for row in run.profile(axis).to_dict("records"):
        key = _told(row[AXES[axis]])
        if not str(key).startswith("(") or str(key).startswith("(anonymous"):
            found[key] = {name: _told(row[name]) for name in (*WHOLE, *SHARES)}
    return found


def sums_of(run: Run, axis: str) -> dict[Any, dict[str, Any]]:
    """Return the same by SQL."""
    text = (ORACLES / "profile.sql").read_text().replace("{axis}", AXES[axis])
    rows: list[dict[Any, Any]] = run.sql(text).to_dict("records")
    return {_told(row.pop("key")): {name: _told(row[name]) for name in row} for row in rows}


def test_profiles_are_what_sql_adds_up(real_trace: Path) -> None:
    run = load(real_trace)
    if run.summary["no_gpu"]:
        pytest.skip("no work of a device")
    for axis in AXES:
        right, found = sums_of(run, axis), profile_of(run, axis)
        assert found.keys() - {None} == right.keys() - {None}
        for key in found.keys() & right.keys():
            for name in WHOLE:
                assert found[key][name] == right[key][name], (axis, key, name)
            for name in SHARES:
                share = right[key][name]
                is_equal = pytest.approx(share, rel=1e-9) if share is not None else None
                assert found[key][name] == is_equal, (axis, key, name)
    largest = run.profile("name", columns=["max_gbps"]).set_index("kernel")["max_gbps"]
    right = sums_of(run, "name")
    assert {key: _told(rate) for key, rate in largest.items() if key in right} == {
        key: right[key]["max_gbps"] for key in largest.index if key in right
    }


def test_devices_are_idle_for_what_sql_adds_up(real_trace: Path) -> None:
    run = load(real_trace)
    if run.summary["no_gpu"]:
        pytest.skip("no work of a device")
    _, windows = run_time.idle_and_windows(run.tables)

    right = run.sql((ORACLES / "idle.sql").read_text())

    names = ["rank", "device", "span_ns", "span_idle_ns", "window_ns", "busy_ns", "idle_ns"]
    assert windows[names].to_dict("records") == right[names].to_dict("records")
    idle = run.sql(
        "SELECT rank, device, sum(time_ns) AS idle_ns, min(time_ns) AS least, "
        "string_agg(DISTINCT cause) AS causes FROM idle GROUP BY ALL ORDER BY ALL"
    )
    assert windows[windows["idle_ns"] > 0]["idle_ns"].tolist() == idle["idle_ns"].tolist()
    assert (idle["least"] > 0).all()
    assert {cause for own in idle["causes"] for cause in own.split(",")} <= set(NAMES)


# Lines


def test_ledgers_of_lines_hold_what_their_tables_do(real_trace: Path) -> None:
    found = load(real_trace).sql((ORACLES / "ledgers.sql").read_text())

    assert found.to_dict("records") == []


def _asked(run: Run) -> list[dict[str, Any]]:
    """Return what is asked of the lines of a run: a query each."""
    lines = run.table("lines").to_pandas()
    ledgers = [name for name in ("device", "host") if (lines["ledger"] == name).any()]
    step = [int(lines["step"].max())] if lines["step"].notna().any() else []
    return [
        *({"ledger": ledger} for ledger in ledgers),
        *({"ledger": ledgers[0], "step": number} for number in step),
        {"ledger": ledgers[0], "phase": "backward"},
        {"ledger": ledgers[-1], "phase": "forward"},
    ]


def test_trees_of_lines_are_what_sql_adds_up(real_trace: Path) -> None:
    run = load(real_trace)
    text = (ORACLES / "lines.sql").read_text()

    for query in _asked(run):
        words = {"ledger": f"'{query['ledger']}'", "step": "NULL::BIGINT", "phase": "NULL"}
        words |= {"step": str(query["step"])} if "step" in query else {}
        words |= {"phase": f"'{query['phase']}'"} if "phase" in query else {}
        own = text
        for name, word in words.items():
            own = own.replace(f"{{{name}}}", word)
        right = run.sql(own).to_dict("records")
        found = run.lines(**query).to_dict("records")
        assert len(found) == len(right)
        for row, wanted in zip(found, right, strict=True):
            assert {name: _told(cell) for name, cell in row.items()} == {
                name: _near(_told(wanted[name]))
                if str(name).endswith("_pct")
                else _told(wanted[name])
                for name in row
            }, query


def _near(number: float | None, least: float = 0) -> Any:
    return None if number is None else pytest.approx(number, rel=1e-9, abs=least)


# Comparisons


def _compared_by_sql(stores: tuple[Path, Path]) -> dict[str, dict[Any, dict[str, Any]]]:
    """Return what SQL makes of two stores: rows of totals, terms and ops by what they are of."""
    connection = duckdb.connect(config={"threads": "2"})
    for name in ("kernels", "copies", "steps", "idle", "trace"):
        for side, store in enumerate(stores):
            rows = connection.read_parquet(f"{store / name}/*.parquet")
            rows.project(f"{side} AS side, *").create_view(f"{name}_{side}")
        connection.execute(f"CREATE VIEW {name} AS FROM {name}_0 UNION ALL BY NAME FROM {name}_1")
    rows = connection.execute((ORACLES / "compare.sql").read_text()).df().to_dict("records")
    found: dict[str, dict[Any, dict[str, Any]]] = {"total": {}, "term": {}, "op": {}}
    for row in rows:
        key = (row["name"], _told(row["op"])) if row["what"] == "op" else row["name"]
        found[row["what"]][key] = {name: _told(row[name]) for name in ("a", "b", "delta", "error")}
    return found


def _next_trace(trace: Path) -> Path:
    """Return another recording, so that each is before one and after one."""
    every = [path for paths in (*SHARED_TRACES.values(), MORE_TRACES) for path in paths]
    return every[(every.index(trace) + 1) % len(every)]


def _check_intervals(found: Compared, terms: dict[Any, dict[str, Any]], least: float) -> None:
    for row in found.terms.to_dict("records"):
        right = terms[row["term"]]
        assert float(row["delta_ns"]) == _near(right["delta"], least), row["term"]
        half = None if right["error"] is None else 2 * right["error"]
        half_found = None if pd.isna(row["lo_ns"]) else (row["hi_ns"] - row["lo_ns"]) / 2
        assert half_found == (None if half is None else pytest.approx(half, rel=1e-6, abs=least))


def _check(runs: tuple[Run, Run]) -> None:
    found = compare(*runs, force=True)

    right = _compared_by_sql((runs[0].path, runs[1].path))

    least = 1e-9 * max(map(float, found.comparison.step_ns))
    _check_intervals(found, right["term"], least)
    others = right["term"].keys() - set(found.terms["term"])
    assert all(right["term"][name]["delta"] == _near(0, least) for name in others)
    totals: dict[Any, Any] = {
        row["metric"]: row for row in found.comparison.totals.to_dict("records")
    }
    assert totals.keys() == right["total"].keys()
    for name, row in totals.items():
        assert float(row["a_ns"]) == _near(right["total"][name]["a"], least)
        assert float(row["b_ns"]) == _near(right["total"][name]["b"], least)
    parts = parts_by(found.comparison, ["op"])
    keys = zip(parts["term"], map(_told, parts["op"]), strict=True)
    of_ops = dict(zip(keys, parts["delta_ns"], strict=True))
    assert of_ops.keys() <= right["op"].keys()
    for key, row in right["op"].items():
        assert of_ops.get(key, 0.0) == _near(row["delta"], least), key


def test_differences_of_runs_are_what_sql_makes_of_them(real_trace: Path) -> None:
    runs = load(real_trace), load(_next_trace(real_trace))
    if any(run.summary["no_gpu"] for run in runs):
        pytest.skip("no work of a device")
    _check(runs)


@pytest.mark.parametrize(
    "names",
    [("rn50_v100_w0", "hta_ns_v100"), ("hta_ns_v100", "hta_diff_control_a100")],
    ids="-".join,
)
def test_intervals_of_steps_are_those_that_sql_finds(
    names: tuple[str, str], shared_trace: Callable[[str], Path]
) -> None:
    first, second = (load(shared_trace(f"kineto/{name}.json.gz")) for name in names)

    _check((first, second))

    assert compare(first, second, force=True).terms["lo_ns"].notna().any()
