"""Events that begin and end in rows of their own, phases B and E, are as those of phase X."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyprof2.api import run_findings
from pyprof2.parsers.kineto import SCANNERS, read_recordings
from pyprof2.problems import UNPAIRED_END
from tests.kineto_events import MAIN, PID, Event, Time, kernel, launch, load_events, op, rows, trace

if TYPE_CHECKING:
    from pathlib import Path


def begin(event: Event) -> Event:
    """Return the beginning of an event of phase X."""
    return {key: value for key, value in event.items() if key != "dur"} | {"ph": "B"}


def end(ts: Time, name: str | None = None, tid: int = MAIN) -> Event:
    found = {"ph": "E", "pid": PID, "tid": tid, "ts": ts}
    return found if name is None else found | {"name": name}


def halves(event: Event) -> list[Event]:
    """Return an event of phase X as its beginning and its end."""
    last = {"ph": "E", "ts": event["ts"] + event["dur"]}
    return [begin(event), last | {key: event[key] for key in ("pid", "tid", "name")}]


WORK = [
    op("aten::linear", 0, 30, id=1, seq=4, dims=[[2, 3]], types=["float"]),
    op("aten::mm", 5, 20, id=2, dims=[[2, 3], [3, 4]], types=["float", "float"]),
    launch(6, 9, dur=2),
    op("aten::add", 25, 5),
    op("aten::empty", 30, 0),
    op("aten::other", 3, 40, tid=MAIN + 1),
    kernel(40, 10, 9),
    kernel(50, 4, 10, {"stream": 7}),
]


@pytest.mark.parametrize("turned", [False, True])
def test_pairs_give_the_tables_of_whole_events(tmp_path: Path, *, turned: bool) -> None:
    pairs = [half for event in WORK for half in halves(event)]
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()

    whole, paired = load_events(one, *WORK), load_events(two, *(pairs[::-1] if turned else pairs))

    # Signatures and estimates are numbered as they come in the file.
    for name in ("kernels", "ops", "launches"):
        columns = set(whole.table(name).column_names) - {"signature_id", "estimate_id"}
        expected, found = (run.table(name).select(sorted(columns)) for run in (whole, paired))
        assert found.to_pylist() == expected.to_pylist()
    assert run_findings.warnings(paired.tables) == run_findings.warnings(whole.tables)


@pytest.mark.parametrize("scanner", SCANNERS)
@pytest.mark.parametrize(
    ("events", "wanted", "lost"),
    [
        pytest.param(
            [begin(op("a", 0, 0)), begin(op("b", 2, 0)), end(5), end(9)],
            [("a", 0, 9_000), ("b", 2_000, 3_000)], 0, id="ends without names",
        ),
        pytest.param(
            [begin(op("a", 0, 0)), end(5, "a"), begin(op("a", 5, 0)), end(8, "a")],
            [("a", 0, 5_000), ("a", 5_000, 3_000)], 0, id="touching",
        ),
        pytest.param(
            [begin(op("a", 0, 0)), begin(op("b", 2, 0)), end(9, "a")],
            [("a", 0, 9_000)], 1, id="an end that is missing",
        ),
        pytest.param(
            [end(1, "b"), begin(op("a", 2, 0)), end(9, "a")],
            [("a", 2_000, 7_000)], 1, id="a beginning that is missing",
        ),
        pytest.param([begin(op("a", 0, 0))], [], 1, id="open at the end"),
        pytest.param(
            [begin(op("a", 0, 0)), begin(op("b", 0, 0)), end(3, "a"), end(9, "b")],
            [("b", 0, 9_000), ("a", 0, 3_000)], 0, id="both begin at once",
        ),
        pytest.param(
            [begin(op("a", 0, 0)), begin(op("b", 4, 0)), end(4, "b"), end(9, "a")],
            [("a", 0, 9_000), ("b", 4_000, 0)], 0, id="no time at all",
        ),
        pytest.param(
            [begin(op("a", 0, 0)), begin(op("b", 1, 0, tid=7)), end(5, tid=7), end(9)],
            [("a", 0, 9_000), ("b", 1_000, 4_000)], 0, id="two threads",
        ),
        pytest.param(
            [begin(op("a", 0, 0)), begin({**op("x", 2, 0), "cat": "strange"}), end(4), end(9)],
            [("a", 0, 9_000)], 0, id="of no known kind",
        ),
        pytest.param(
            [begin(op("a", "N/A", 0)), end(9, "a")], [], 2, id="no time",
        ),
    ],
)  # fmt: skip
def test_beginnings_and_ends_nest_in_their_thread(
    tmp_path: Path, events: list[Event], wanted: list[tuple[str, int, int]], lost: int, scanner: str
) -> None:
    (tmp_path / "raw").mkdir()
    (found,) = read_recordings(trace(tmp_path, *events), tmp_path / "raw", scanner=scanner)

    ops = rows(found.read("ops"), "op", "start_ns", "dur_ns")
    assert sorted(ops) == sorted(wanted)
    assert found.problems[UNPAIRED_END] == lost
