"""NVTX ranges as ops, layers, steps and annotations, by what their texts say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.columns import distinct as distinct_values
from pyprof2.markers import DOMAIN, format_marker, pack_payload
from pyprof2.parsers._labels import Label, label_marker, machine_of, name_layers
from pyprof2.parsers._names import cut_names
from pyprof2.parsers._nccl_payloads import NcclCalls
from pyprof2.parsers._nsight_rows import ID_MASK, codes_array, distinct, ints, where
from pyprof2.parsers._nsight_texts import cut_texts, label_parts
from pyprof2.parsers._steps import OpSpan, StepMark, StepRanges
from pyprof2.problems import MARKS, NAMES, RANGE_OPEN
from pyprof2.recording import ANNOTATED_INPUTS, ANNOTATED_STEPS, UNNAMED_DOMAIN, TextCodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pyprof2.parsers._nsight_rows import Bool, Columns, Int, Process, Strings
    from pyprof2.parsers._nsight_texts import Parts
    from pyprof2.recording import Signature, Spool

    Labelled = dict[str, NDArray[np.int32]]

_DOMAIN_CREATED: Final = 75
_DOMAINS: Final = (_DOMAIN_CREATED, 76)
_DEFAULT_DOMAIN: Final = 0
# With an N those that were imported from a text file of NVTX events.
_PUSHED: Final = (59, 70)
_STARTED: Final = (60, 71)
_MARKS: Final = (34, 65)
_THREAD_STEP: Final = pack_payload(0, 1)
_WHATS: Final = ("op", "range", "step", "process", "cpu", "entry", "nothing")
_FIELDS: Final = (
    "what", "op", "name", "kind", "signature", "layer", "stack", "direction",
    "backward", "recompute", "accumulate", "own",
)  # fmt: skip


class _Labels:
    """The meanings of the distinct texts of one process, as columns to look up by their codes."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._codes: dict[tuple[Any, ...], int] = {}
        self._new: list[list[int]] = []
        self._table = np.empty((0, len(_FIELDS)), np.int32)
        self.labels: list[Label] = []
        self.signatures = TextCodes()

    def code(self, read: Callable[..., Label], **text: Any) -> int:
        """Return the code of a text; a new one is read with `read`."""
        key = (read, *text.values())
        code = self._codes.get(key)
        if code is None:
            label = read(**text)
            code = self._codes[key] = len(self.labels)
            self.labels.append(label)
            self._new.append(self._row(label))
        return code

    def _row(self, label: Label) -> list[int]:
        ops, ranges = self._spool.texts["ops"], self._spool.texts["ranges"]
        is_op = label.what == "op"
        return [
            _WHATS.index(label.what),
            ops["op"][label.name] if is_op else -1,
            ranges["name"][label.text],
            ranges["kind"][label.kind or "annotation"],
            -1 if label.signature is None else self.signatures[label.signature],
            -1 if label.path is None else ops["layer"][label.path],
            -1 if label.stack is None else ops["stack"][label.stack],
            -1 if label.direction is None else ops["direction"][label.direction],
            int(label.direction == "backward"),
            int(label.recompute),
            int(label.accumulate),
            int(is_op and label.marker is not None),
        ]

    def look_up(self, codes: Int) -> Labelled:
        """Return the columns of `_FIELDS` for some codes; -1 is null."""
        if self._new:
            self._table = np.concatenate((self._table, np.array(self._new, np.int32)))
            self._new.clear()
        rows = self._table[codes]
        return {name: rows[:, at] for at, name in enumerate(_FIELDS)}


class RangeReader:
    """Appends the rows of NVTX events to the ops and ranges of one process.

    Args:
        process: whose they are.
        strings: the registered texts.
    """

    def __init__(self, process: Process, strings: Strings) -> None:
        self._process = process
        self._strings = strings
        self._labels = _Labels(process.spool)
        # A cut recording may lack the name of our domain: a marker in a nameless one is ours.
        self._foreign = np.array([_DEFAULT_DOMAIN])
        self._domains: dict[int, str | None] = {_DEFAULT_DOMAIN: None}
        self._open: list[Columns] = []
        self._nccl = NcclCalls()
        self._ranges = StepRanges(process.spool)
        self._op_span = OpSpan()

    @property
    def signatures(self) -> list[Signature]:
        """The distinct calls of ops, by `signature_id`."""
        return list(self._labels.signatures)

    def add(self, rows: Columns) -> None:
        """Append the rows of one batch."""
        kind = ints(rows["eventType"], _PUSHED[0])
        if (kind == _DOMAIN_CREATED).any():
            made = where(rows, kind == _DOMAIN_CREATED)
            position = self._strings.positions(ints(made["textId"]))
            texts = self._texts(made["text"], position).to_pylist()
            numbers = ints(made["domainId"], _DEFAULT_DOMAIN)
            self._domains.update(zip(numbers.tolist(), texts, strict=True))
            is_other = np.array([text != DOMAIN for text in texts])
            self._foreign = np.union1d(self._foreign, numbers[is_other])
        is_mark, is_range = np.isin(kind, _MARKS), np.isin(kind, _PUSHED + _STARTED)
        is_open = is_range & rows["end"].is_null().to_numpy(zero_copy_only=False)
        other = ~(is_range | is_mark | np.isin(kind, _DOMAINS))
        if other.any():
            self._process.skipped[NAMES] += int(other.sum())
        if is_open.any():
            self._open.append(where(rows, is_open))
        if is_mark.any():
            self._add_marks(where(rows, is_mark))
        is_range &= ~is_open
        self._add_ranges(rows if is_range.all() else where(rows, is_range))

    def finish(self) -> None:
        """Append what could not be before the end of the recording was known."""
        end = self._process.last_ns
        for rows in self._open:
            count = len(rows["start"])
            self._process.problems[RANGE_OPEN] += count
            self._add_ranges(rows | {"end": pa.array(np.full(count, end))})
        self._open.clear()
        self._process.annotated[ANNOTATED_STEPS] += self._ranges.finish(self._op_span, end)
        self._ranges.report(self._process.problems, self._process.skipped)
        name_layers(self._process.spool)

    def _add_ranges(self, rows: Columns) -> None:
        rows, columns = self._process.times(rows)
        if not len(rows["start"]):
            return
        codes, sequence, op_id = self._label(rows)
        label = self._labels.look_up(codes)
        columns["tid"] = pc.bit_wise_and(rows["globalTid"], ID_MASK)
        # A range that was started, not pushed, may end on another thread: it encloses no op.
        started = np.isin(ints(rows["eventType"], _PUSHED[0]), _STARTED)
        is_op = (label["what"] == _WHATS.index("op")) & ~started
        is_other = (label["what"] <= _WHATS.index("range")) & ~is_op
        unknown = codes[label["what"] == _WHATS.index("nothing")]
        for code, count in zip(*np.unique(unknown, return_counts=True), strict=True):
            problem = self._labels.labels[code].problem
            if problem:
                self._process.problems[problem] += int(count)
        if is_op.any():
            whole = columns | {"sequence_nr": sequence, "recorded_id": op_id}
            whole["payload"] = rows["int64Value"]
            self._add_ops(whole, label, is_op)
        if is_other.any():
            names = self._with_numbers(label, codes, rows["int64Value"])
            named = {"name": codes_array(names), "kind": codes_array(label["kind"])}
            domains = self._process.spool.texts["ranges"]["domain"]
            unique, place = distinct_values(ints(rows["domainId"], _DEFAULT_DOMAIN))
            words = [self._domains.get(number, UNNAMED_DOMAIN) for number in unique.tolist()]
            table = [-1 if word is None else domains[word] for word in words]
            named["domain"] = codes_array(np.array(table, np.int32)[place])
            named["signature_id"] = self._calls(rows, is_other)
            columns = where(columns | named, is_other)
            self._ranges.append(columns, int(is_other.sum()))

    def _calls(self, rows: Columns, wanted: Bool) -> pa.Array:
        """Return the signatures of the collectives that ranges describe in their payloads."""
        registered = self._strings.positions(ints(rows["jsonTextId"]))
        described = (registered >= 0) | (ints(pc.binary_length(rows["jsonText"]), 0) > 0)
        found = np.full(len(described), -1, np.int64)
        at = np.flatnonzero(described & wanted)
        if len(at):
            chosen = {name: column.take(pa.array(at)) for name, column in rows.items()}
            payloads = self._texts(chosen["jsonText"], registered[at])
            names = self._texts(chosen["text"], self._strings.positions(ints(chosen["textId"])))
            for row, *said in zip(
                at.tolist(), names.to_pylist(), payloads.to_pylist(), strict=True
            ):
                call = self._nccl.signature(*said)
                found[row] = -1 if call is None else self._labels.signatures[call]
        return pa.array(found, mask=found < 0)

    def _with_numbers(self, label: Labelled, codes: Int, payload: pa.Array) -> NDArray[np.int32]:
        """Return the codes of names; markers of collectives get the number in their payload."""
        texts = self._process.spool.texts["ranges"]
        of_collective = label["kind"] == texts["kind"]["collective"]
        names = label["name"]
        if of_collective.any():
            names, numbers = names.copy(), ints(payload, -1)
            for at in np.flatnonzero(of_collective & (numbers >= 0)).tolist():
                marker = self._labels.labels[codes[at]].marker
                if marker is not None:
                    numbered = replace(marker, number=int(numbers[at]))
                    names[at] = texts["name"][format_marker(numbered)]
        return names

    def _add_ops(self, columns: Columns, label: Labelled, is_op: Bool) -> None:
        if not is_op.all():
            columns = where(columns, is_op)
            label = {name: values[is_op] for name, values in label.items()}
        payload = columns.pop("payload")
        span = pc.min_max(columns["start_ns"]).as_py()
        self._op_span.add(span["min"], span["max"])
        columns["op"] = codes_array(label["op"])
        columns["signature_id"] = codes_array(label["signature"])
        if label["own"].any():
            columns |= _own_columns(columns["sequence_nr"], payload, label)
            with_inputs = (label["own"] > 0) & (label["signature"] >= 0)
            self._process.annotated[ANNOTATED_INPUTS] += int(with_inputs.sum())
        self._process.spool.append("ops", columns, int(is_op.sum()))

    def _label(self, rows: Columns) -> tuple[Int, pa.Array, pa.Array]:
        """Return for each row the code of its label, and the numbers in its text."""
        own = ~np.isin(ints(rows["domainId"], _DEFAULT_DOMAIN), self._foreign)
        inline = ints(pc.binary_length(rows["text"]), 0) > 0
        position = np.where(inline, -1, self._strings.positions(ints(rows["textId"])))
        if not own.any():
            return self._torch_codes(self._texts(rows["text"], position))
        codes = np.empty(len(own), np.int64)
        codes[own] = self._own_codes(rows["text"].filter(pa.array(own)), position[own])
        others = self._texts(rows["text"].filter(pa.array(~own)), position[~own])
        codes[~own], *numbers = self._torch_codes(others)
        place = np.cumsum(~own) - 1
        at = pa.array(place, mask=own)
        sequence, op_id = (number.take(at) for number in numbers)
        return codes, sequence, op_id

    def _texts(self, inline: pa.StringArray, position: Int) -> pa.StringArray:
        if not (position >= 0).any():
            return inline
        return pc.if_else(pa.array(position >= 0), self._strings.take(position), inline)

    def _own_codes(self, inline: pa.StringArray, position: Int) -> Int:
        """Return the codes of texts in our own domain; most are registered."""
        unique, inverse = distinct(position + 1, len(self._strings) + 1)
        texts = self._strings.take(unique - 1).to_pylist()
        table = [
            -1 if text is None else self._labels.code(label_marker, text=text) for text in texts
        ]
        codes = np.array(table, np.int64)[inverse]
        if (codes < 0).any():
            encoded = inline.filter(pa.array(codes < 0)).dictionary_encode()
            texts = encoded.dictionary.to_pylist()
            table = [self._labels.code(label_marker, text=text) for text in texts]
            codes[codes < 0] = np.array(table, np.int64)[encoded.indices.to_numpy()]
        return codes

    def _torch_codes(self, texts: pa.StringArray) -> tuple[Int, pa.Array, pa.Array]:
        """Return the codes of texts outside of our domain, and the numbers in them."""
        parts = cut_texts(texts)
        return self._part_codes(parts), parts.sequence, parts.op_id

    def _part_codes(self, parts: Parts) -> Int:
        name, size = parts.names, parts.sizes.dictionary_encode()
        numbered, has_id = (
            column.is_valid().to_numpy(zero_copy_only=False)
            for column in (parts.sequence, parts.op_id)
        )
        at_size = ints(size.indices, -1).astype(np.int64) + 1
        key = name.indices.to_numpy() * np.int64(len(size.dictionary) + 1) + at_size
        limit = 4 * len(name.dictionary) * (len(size.dictionary) + 1)
        unique, inverse = distinct(key * 4 + 2 * numbered + has_id, limit)
        names = cut_names(name.dictionary, self._process.problems).to_pylist()
        sizes = [None, *size.dictionary.to_pylist()]
        table = []
        for code in unique.tolist():
            rest, flags = divmod(code, 4)
            a, b = divmod(rest, len(sizes))
            given = {"numbered": bool(flags & 2), "has_id": bool(flags & 1)}
            table.append(self._labels.code(label_parts, name=names[a], sizes=sizes[b], **given))
        return np.array(table, np.int64)[inverse]

    def _add_marks(self, rows: Columns) -> None:
        """Note our own instants: where steps begin, who the process is, what its CPU can do."""
        own = ~np.isin(ints(rows["domainId"], _DEFAULT_DOMAIN), self._foreign)
        self._process.skipped[MARKS] += int((~own).sum())
        rows, columns = self._process.times(where(rows | {"end": rows["start"]}, own))
        if not len(rows["start"]):
            return
        position = self._strings.positions(ints(rows["textId"]))
        codes = self._own_codes(rows["text"], position)
        tid = pc.bit_wise_and(rows["globalTid"], ID_MASK)
        starts, numbers = columns["start_ns"].to_pylist(), ints(rows["int64Value"], -1).tolist()
        for code, start, thread, number in zip(
            codes.tolist(), starts, tid.to_pylist(), numbers, strict=True
        ):
            label = self._labels.labels[code]
            if label.marker is None:
                self._process.skipped[MARKS] += 1
            elif label.what == "step":
                marker = label.marker
                step = number if marker.step is None and number >= 0 else marker.step
                mark = StepMark(start, self._process.pid, thread, step, marker.event)
                self._ranges.mark(mark)
            elif label.what == "process":
                self._process.rank = label.marker.rank
                self._process.world_size = label.marker.world_size
                self._process.source_root = label.marker.source_root
                self._process.machine = machine_of(label.marker)
            elif label.what == "cpu":
                self._process.cpu = label.marker
            elif label.what == "entry":
                self._process.entry = label.marker


def _own_columns(sequence: pa.Array, payload: pa.Array, label: Labelled) -> Columns:
    """Return what our markers say of ops, and null where the range is not ours."""
    own = label["own"] > 0
    number = ints(payload, -1)
    has_node = own & (number >= 0)
    thread = np.where(has_node, number // _THREAD_STEP, -1)
    mine = pa.array(number % _THREAD_STEP, mask=~has_node)
    is_node = has_node & (label["backward"] > 0)
    return {
        "sequence_nr": pc.if_else(pa.array(own), mine, sequence),
        "thread_nr": codes_array(thread),
        "forward_thread": pa.array(thread + 1, mask=~is_node),
        **{name: codes_array(label[name]) for name in ("layer", "stack", "direction")},
        **{name: pa.array(label[name] > 0, mask=~own) for name in ("recompute", "accumulate")},
    }
