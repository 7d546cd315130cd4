"""The same tracks, slices, flows and counters as JSON of Chrome's trace event format.

Chrome's own page, Perfetto and many programs read it. Each rank is a process there, and each track
of it a thread, named by the tracks that it is below.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.reports.cells import clean
from pyprof2.reports.perfetto.packets import AT_A_TIME, CATEGORY, DOUBLE, NAME, TEXT, VALUE, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pyprof2.reports.perfetto.packets import Bools, Ints, SliceArgument, Slices

_NS_PER_US: Final = 1000
_BETWEEN: Final = ",\n"


class ChromeWriter(Writer):
    """Writes events one after another; tracks and texts are as in `Writer`."""

    def __init__(self, write: Callable[[bytes], object], base: int = 0) -> None:
        """Write the head.

        Args:
            write: takes bytes.
            base: the time in ns that those of the file count from. Readers take them for
                floats, which do not hold the us since 1970 to the ns.
        """
        self._base = base
        # The JSON of the texts numbered so far, by kind; 0 is none.
        self._words: dict[int, list[str]] = {kind: ['""'] for kind in (CATEGORY, NAME, VALUE)}
        self._places: list[tuple[int, str]] = [(0, "")]  # of each track its process and its name
        self._is_first = True
        super().__init__(write)

    def _begin(self) -> None:
        head = {"displayTimeUnit": "ns", "baseTimeNanoseconds": self._base}
        self._write(json.dumps(head)[:-1].encode() + b', "traceEvents": [\n')

    def close(self) -> None:
        """Write the end of the file."""
        self._write(b"\n]}\n")

    def _describe(
        self, number: int, order: int, name: str, parent: int, counter: int | str | None
    ) -> None:
        process, above = self._places[parent]
        name = clean(name)
        path = "" if not parent else f"{above} / {name}" if above else name
        self._places.append((process or number, path))
        if counter is not None:
            return
        what, where = ("thread", {"tid": number}) if parent else ("process", {})
        facts = {"name": path or name}, {"sort_index": order}
        for kind, fact in zip(("name", "sort_index"), facts, strict=True):
            event = {"ph": "M", "name": f"{what}_{kind}", "pid": process or number, **where}
            self._write_events(pa.array([json.dumps(event | {"args": fact})]))

    def _write_texts(self, kind: int, new: Sequence[tuple[int, str]]) -> None:
        if kind in self._words:
            self._words[kind] += [json.dumps(text) for _, text in new]

    def slices(self, begins: Slices, ends: tuple[Ints, Ints], is_end: Bools) -> None:  # noqa: ARG002
        """Write slices, each as one event with its duration, and the flows from and to them."""
        for first in range(0, len(begins), AT_A_TIME):
            rows = slice(first, first + AT_A_TIME)
            pid, tid = self._place(begins.track[rows])
            at = (pid, ',"tid":', tid, ',"ts":', _us(begins.start[rows] - self._base))
            names = (
                ',"cat":', self._text(CATEGORY, begins.category[rows]),
                ',"name":', self._text(NAME, begins.name[rows]),
            )  # fmt: skip
            arguments = self._arguments(begins.arguments, rows, len(begins.start[rows]))
            length = (',"dur":', _us(begins.end[rows] - begins.start[rows]))
            self._write_events(
                _joined('{"ph":"X","pid":', *at, *length, *names, ',"args":{', arguments, "}}")
            )
            tail = ',"cat":"flow","name":"flow","id":'
            if begins.flow_to is not None:
                flow = begins.flow_to[rows]
                flow_ends = _joined('{"ph":"f","bp":"e","pid":', *at, tail, _digits(flow), "}")
                self._write_events(flow_ends.filter(pa.array(flow > 0)))
            if begins.flow_offsets is not None:
                count = len(begins.start[rows])
                offsets = begins.flow_offsets[rows.start : rows.start + count + 1]
                of = pa.array(np.repeat(np.arange(count), np.diff(offsets)))
                flow = begins.flows[offsets[0] : offsets[-1]]
                place = [each if isinstance(each, str) else each.take(of) for each in at]
                self._write_events(_joined('{"ph":"s","pid":', *place, tail, _digits(flow), "}"))

    def counters(self, time: Ints, track: Ints, value: NDArray[np.float64]) -> None:
        """Write values of counters, from these instants on."""
        used, place = np.unique(track, return_inverse=True)
        named = pa.array([json.dumps(self._places[each][1]) for each in used.tolist()], pa.string())
        name, (pid, _) = named.take(pa.array(place)), self._place(track)
        number = pc.cast(pa.array(value), pa.string())
        self._write_events(
            _joined(
                '{"ph":"C","pid":',
                pid,
                ',"ts":',
                _us(time - self._base),
                ',"name":',
                name,
                ',"args":{"value":',
                number,
                "}}",
            )
        )

    def _place(self, track: Ints) -> tuple[pa.Array, pa.Array]:
        """Return process and thread of tracks."""
        process = np.array([each for each, _ in self._places], np.int64)
        return _digits(process[track]), _digits(track)

    def _text(self, kind: int, numbers: Ints) -> pa.Array:
        """Return the JSON of texts by their numbers."""
        used, place = np.unique(numbers, return_inverse=True)
        words = [self._words[kind][number] for number in used.tolist()]
        return pa.array(words, pa.string()).take(pa.array(place))

    def _arguments(self, arguments: Sequence[SliceArgument], rows: slice, count: int) -> pa.Array:
        """Return the members of the object of arguments of each slice."""
        members = [pa.array([""] * count, pa.string())]
        for each in arguments:
            present, values = each.present[rows], each.values[rows]
            if each.kind == TEXT:
                text = self._text(VALUE, values)
            else:
                text = pc.cast(pa.array(values), pa.string())
                # JSON has no word for infinity.
                present = present & np.isfinite(values) if each.kind == DOUBLE else present
            member = _joined(f",{json.dumps(each.name)}:", text)
            members.append(pc.if_else(pa.array(present), member, ""))
        return pc.utf8_ltrim(_joined(*members), ",")

    def _write_events(self, events: pa.Array) -> None:
        if not len(events):
            return
        whole = pa.ListArray.from_arrays(pa.array([0, len(events)], pa.int32()), events)
        text = pc.binary_join(whole, _BETWEEN)[0].as_py()
        self._write(("" if self._is_first else _BETWEEN).encode() + text.encode())
        self._is_first = False


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _digits(numbers: Ints) -> pa.Array:
    return pc.cast(pa.array(numbers, pa.int64()), pa.string())


def _us(time: Ints) -> pa.Array:
    """Return times in us with three decimals: the ns, to the last digit."""
    whole, rest = np.divmod(np.abs(time), _NS_PER_US)
    sign = pc.if_else(pa.array(time < 0), "-", "")
    return _joined(sign, _digits(whole), ".", pc.utf8_lpad(_digits(rest), 3, "0"))
