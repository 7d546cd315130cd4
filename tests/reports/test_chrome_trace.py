"""A recording as JSON of Chrome's holds what it holds as a trace of Perfetto's, and is JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2.reports.perfetto.export import PerfettoQuery, show
from tests.kineto_events import copy, kernel, launch, launched, load_events, memory, op, step
from tests.reports.perfetto_reader import read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

HOSTILE = 'a"\\\n\x1b[31m</script>\u202e'


def chrome(run: Run, path: Path) -> list[dict[str, Any]]:
    """Return the events that are written, their times in ns, read without floats.

    Times have three decimals, and are small enough to be floats all the same.
    """
    assert show(run, PerfettoQuery(path, chrome=True)) == []
    document = json.loads(path.read_text(), parse_float=Decimal)
    assert document["displayTimeUnit"] == "ns"
    events: list[dict[str, Any]] = document["traceEvents"]
    for event in events:
        for name in {"ts", "dur"} & event.keys():
            assert event[name].as_tuple().exponent == -3
            assert Decimal(repr(float(event[name]))) == event[name]
            event[name] = int(event[name] * 1000)
        if "ts" in event:
            event["ts"] += document["baseTimeNanoseconds"]
    return events


def plain(args: dict[str, Any]) -> str:
    """Return arguments as text, their fractions as floats."""
    return repr({n: float(v) if isinstance(v, Decimal) else v for n, v in args.items()})


def names(events: list[dict[str, Any]]) -> dict[tuple[int, int | None], str]:
    found = {}
    for event in events:
        if event["ph"] == "M" and event["name"].endswith("_name"):
            found[event["pid"], event.get("tid")] = event["args"]["name"]
    return found


def assert_same(run: Run, folder: Path) -> None:
    """Compare all that both files hold."""
    events = chrome(run, folder / "x.json")
    assert show(run, PerfettoQuery(folder / "x.pftrace")) == []
    trace, track = read(folder / "x.pftrace"), names(events)

    slices = [event for event in events if event["ph"] == "X"]
    assert sorted(
        (track[e["pid"], None], track[e["pid"], e["tid"]], e["name"], e["cat"], e["ts"],
         e["ts"] + e["dur"], plain(e["args"]))
        for e in slices
    ) == sorted(
        (s.track[0], " / ".join(s.track[1:]), s.name, s.category, s.start, s.end or 0,
         plain(s.args))
        for s in trace.slices
    )  # fmt: skip
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            key = track[event["pid"], None], *event["name"].split(" / ")
            counters[key].append((event["ts"], float(event["args"]["value"])))
    assert counters == trace.counters
    flows: dict[str, dict[int, tuple[str, str, int]]] = {"s": {}, "f": {}}
    for event in events:
        if event["ph"] in flows:
            assert event["id"] not in flows[event["ph"]]
            place = track[event["pid"], None], track[event["pid"], event["tid"]], event["ts"]
            flows[event["ph"]][event["id"]] = place
    ends = [("s", "flows_out"), ("f", "flows_in")]
    assert flows == {
        kind: {
            flow: (s.track[0], " / ".join(s.track[1:]), s.start)
            for s in trace.slices
            for flow in getattr(s, name)
        }
        for kind, name in ends
    }


def test_all_that_is_in_a_trace_of_perfettos_is_there(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        step(1, 0, 90),
        op("aten::mm", 1, 10, dims=[[4, 8], [8, 16]], types=["float", "float"]),
        launched(2, 1, at="20.001", dur="40.999", name="volta_sgemm_64x64_nn"),
        op(HOSTILE, 30, 9),
        launched(31, 2, at=70, dur=1, name=HOSTILE),
        launch(40, 3, name="cudaMemcpyAsync"),
        copy(80, 2, 3, name="Memcpy HtoD (Pageable -> Device)", bytes=4096),
        memory(5, Bytes=512, **{"Device Type": 1, "Device Id": 0, "Total Allocated": 512}),
    )

    assert_same(run, tmp_path)


@pytest.mark.minutes
@pytest.mark.parametrize("name", ["hta_mi250_toy", "dlrm_v100_w0"])
def test_a_real_recording_is_the_same_in_both_forms(
    shared_trace: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    assert_same(pyprof2.load(shared_trace(f"kineto/{name}.json.gz")), tmp_path)


def test_pieces_of_any_size_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = load_events(tmp_path, *(launched(10 * n, n + 1, at=10 * n + 5, dur=3) for n in range(40)))
    whole = chrome(run, tmp_path / "whole.json")
    for module in ("chrome", "packets"):
        monkeypatch.setattr(f"pyprof2.reports.perfetto.{module}.AT_A_TIME", 7)

    pieces = chrome(run, tmp_path / "pieces.json")

    assert sorted(map(repr, pieces)) == sorted(map(repr, whole))


def test_a_rank_without_work_is_json_too(tmp_path: Path) -> None:
    run = load_events(tmp_path, kernel(1, 1, 1))

    assert {event["ph"] for event in chrome(run, tmp_path / "x.json")} >= {"M", "X"}
