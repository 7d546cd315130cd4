"""Run the command line in this process, on rows that a test makes or on real files."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

from pyprof2.analysis.summaries.profile import select
from pyprof2.analysis.summaries.spent import Spent
from pyprof2.analysis.summaries.utilization import COLUMNS
from pyprof2.analysis.time.step_times import SHARES
from pyprof2.api import run_findings, run_profile, run_serving, run_time
from pyprof2.cli import main
from pyprof2.parsers.formats import advice_of
from pyprof2.result_tables import STEPS
from pyprof2.store.folder import STORED
from pyprof2.tables import DEVICES
from tests.builders import sums_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import pyarrow as pa

    from pyprof2.analysis.summaries.profile import Sums
    from pyprof2.analysis.time.step_times import TimedStep
    from pyprof2.problems import Advice


@dataclass(frozen=True)
class Result:
    """What a call of the command line left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout."""
        return self.out.splitlines()


@dataclass
class StubRun:
    """A run of the rows that a test made."""

    is_of_server = False

    made: pd.DataFrame
    no_gpu: bool = False
    findings: pd.DataFrame = field(default_factory=pd.DataFrame)
    device: str | None = None
    warnings: list[str] = field(default_factory=list)
    source_roots: tuple[str, ...] = ()
    manifest: dict[str, Any] = field(default_factory=lambda: {"ranks": [], "sources": []})
    stored_sums: None = None
    tensor_core_pct: None = None
    utilization_rows: tuple[dict[str, Any], ...] = ()
    spans: dict[int, list[int]] = field(default_factory=lambda: {0: [0]})
    first_ids: dict[int, dict[str, int]] = field(default_factory=dict)
    spent: Spent = field(default_factory=lambda: Spent(0, 2000, 0, None, None, None, 0, None, 2000))

    windows: tuple[TimedStep, ...] = ()
    slow_starts: frozenset[TimedStep] = frozenset()
    mean_step_ns: float | None = None

    @property
    def tables(self) -> StubRun:
        """It is its tables, too."""
        return self

    @property
    def how_to_record(self) -> Advice:
        """As of a Kineto trace."""
        return advice_of(["kineto"])

    def rows(self, columns: Collection[str] | None = None) -> pd.DataFrame:
        """Return the rows, with no column that was not asked for."""
        return self.made[[name for name in self.made if columns is None or name in columns]]

    def of_span(self, span: int | str) -> StubRun:
        """Return the run: there is one span."""
        assert span in ("latest", "all")
        return self

    def sums(self, keys: Collection[str], *, means: Sequence[str] = (), **selection: Any) -> Sums:
        """Return the rows that fit, added up."""
        return sums_of(select(self.made, **selection), *keys, means=means)

    def time_by(self, column: str) -> dict[str, int]:
        """Return the time by a text, in the order of the texts."""
        return dict(self.made.groupby(column)["dur_ns"].sum())

    def check(self) -> pd.DataFrame:
        """Return the findings."""
        return self.findings

    @property
    def utilization(self) -> pd.DataFrame:
        """No step has a known peak."""
        return pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS)

    @property
    def device_shares(self) -> dict[str, float | None]:
        """Nothing is known of how devices were used."""
        return dict.fromkeys(SHARES)

    def table(self, name: str) -> pa.Table:
        """Return a table of the store: it has no rows."""
        return STORED[name].empty()

    @property
    def devices(self) -> pd.DataFrame:
        """None is described."""
        return pd.DataFrame(columns=list(DEVICES.names))

    @property
    def steps(self) -> pd.DataFrame:
        """No window of a step is known."""
        return pd.DataFrame(columns=list(STEPS.names))

    @property
    def ledger(self) -> pd.DataFrame:
        """All time is in one bin."""
        time = int(self.made["dur_ns"].sum())
        return pd.DataFrame({"bin": ["ok"], "time_ns": [time], "count": [len(self.made)]})

    @property
    def summary(self) -> dict[str, Any]:
        """The totals that the heading shows."""
        return {
            "devices": [] if self.no_gpu else ["GPU X"],
            "ranks": sorted(self.made["rank"].unique().tolist()),
            "steps": sorted(self.made["step"].dropna().unique().tolist()),
            "kernel_count": len(self.made),
            "kernel_time_ns": int(self.made["dur_ns"].sum()),
            "copy_time_ns": 0,
            "op_time_ns": int(self.made["dur_ns"].sum()),
            "gpu_count": 1,
            "profilers": ["kineto"],
            "busy_ns": 1000,
            "span_ns": 2000,
            "gpu_span_ns": 2000,
            "linked_pct": 75.0,
            **dict.fromkeys(("graph_id_ns", "graph_names_ns", "graph_order_ns"), 0),
            "costed_pct": None,
            "no_gpu": self.no_gpu,
            "gpu_call_count": 0,
            "op_count": 1,
            "range_count": 0,
            "ledger": {"ok": int(self.made["dur_ns"].sum()), "no_op": 0},
        }


_FOUND: Final = {
    run_findings: ("how_to_record", "warnings"),
    run_profile: ("ledger", "stored_sums", "tensor_core_pct"),
    run_serving: ("is_of_server",),
    run_time: ("utilization", "utilization_rows"),
}
"""What is found in the tables of a run, and is an attribute of the stub."""
_ASKED: Final = {"rows_of": StubRun.rows, "sums_of": StubRun.sums, "time_by": StubRun.time_by}
"""The methods of the stub that stand for functions of the tables of a run."""


@pytest.fixture
def invoke(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Return a function that runs `pyprof2` with the arguments it gets."""
    monkeypatch.setenv("COLUMNS", "160")

    def run(*args: object) -> Result:
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def use_run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., StubRun]:
    """Return a function that makes every path load as a run of the rows it gets."""

    def use(rows: pd.DataFrame, **facts: Any) -> StubRun:
        run = StubRun(rows, **facts)
        monkeypatch.setattr("pyprof2.api.run.load", lambda *_, **__: run)
        for module, names in _FOUND.items():
            for name in names:
                monkeypatch.setattr(module, name, attrgetter(name))
        for name, method in _ASKED.items():
            monkeypatch.setattr(run_profile, name, method)
        return run

    return use
