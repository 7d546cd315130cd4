"""Tables as files: csv, json and parquet, to a file or to stdout.

Text on stdout may end on a terminal, through `head` too: there characters that a terminal
would act on are escaped, in JSON everywhere, since an escape is the same text to its readers.

Programs and agents get answers in one form, `{"schema": 1, "data": …, "evidence": …, "next": […]}`:
what is null elsewhere is words there, so that nobody takes silence for a zero.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from pyprof2.errors import OutputExistsError, Pyprof2Error, refuse
from pyprof2.reports.cells import clean, terminal_width
from pyprof2.store.places import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pandas as pd
    import pyarrow as pa

    from pyprof2.api.run import Run
    from pyprof2.reports.cells import Listed
    from pyprof2.tables import Column

FORMATS: Final = ("table", "markdown", "csv", "json", "parquet")
_TEXTS: Final = ("table", "markdown")

_GZIP: Final = ".gz"
_GZIP_BYTES: Final = 1 << 18
"""So many are compressed at a time."""
_ROWS_AT_A_TIME: Final = 1 << 14
# OWASP, "CSV Injection".
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Target:
    """Where to write, and in which form.

    Attributes:
        form: one of `FORMATS`.
        path: the file; None: stdout.
        width: of a table; None: that of the terminal.
        csv_safe: whether cells that a spreadsheet would compute get an apostrophe.
        sides: of JSON in the form of `pyprof2.reports.files`: the evidence, and what can follow.
    """

    form: str = "table"
    path: Path | None = None
    width: int | None = None
    csv_safe: bool = False
    sides: tuple[Mapping[str, Any], Sequence[Any]] | None = None

    @property
    def is_text(self) -> bool:
        """Whether it is for people to read."""
        return self.form in _TEXTS

    @property
    def line_width(self) -> int:
        """The most characters that a line of text may have."""
        return terminal_width(self.width)

    def write_lines(self, lines: Iterable[str]) -> None:
        """Write lines of text."""
        write_text("".join(f"{line}\n" for line in lines), self.path)

    def write_frame(
        self, frame: pd.DataFrame, columns: Iterable[Column] = (), top: int | None = None
    ) -> None:
        """Write `frame` as csv, json or parquet.

        Args:
            frame: what to write; its column names are the names in the file.
            columns: what is known of the columns; in Parquet it becomes metadata.
            top: how many of the first rows; None: all.

        Raises:
            UsageError: Parquet, which is binary, would go to a terminal.
        """
        import pyarrow as pa

        known = {column.name: column.field() for column in columns}
        rows = frame if top is None else frame.head(top)
        if self.sides is not None:
            self.write_enveloped(rows.to_dict("records"), columns)
            return
        table = pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)
        # A column without any value has no type of its own.
        untyped = (pa.null(), pa.dictionary(pa.int8(), pa.null()))
        text = pa.large_string()
        fields = [
            known.get(each.name, each.with_type(text) if each.type in untyped else each)
            for each in table.schema
        ]
        schema = pa.schema(fields)
        self.write_table(table.cast(schema) if table.num_rows else schema.empty_table())

    def write_listed(self, table: Listed, columns: Iterable[Column]) -> None:
        """Write all of a small table as csv, json or parquet.

        Args:
            table: the rows.
            columns: what is known of its columns; others are text.
        """
        import pyarrow as pa

        if self.sides is not None:
            names = list(table)
            cells = zip(*(table[name].cells for name in names), strict=True)
            self.write_enveloped([dict(zip(names, row, strict=True)) for row in cells], columns)
            return
        known = {column.name: column.field() for column in columns}
        schema = pa.schema([known.get(n, pa.field(n, pa.large_string())) for n in table])
        arrays = [pa.array(table[field.name].cells, field.type) for field in schema]
        self.write_table(pa.Table.from_arrays(arrays, schema=schema))

    def write_enveloped(self, data: Any, columns: Iterable[Column] = ()) -> None:
        """Write an answer with what it rests on, and what can follow."""
        import msgspec

        evidence, following = self.sides or ({}, ())
        of = {str(name): None for row in data if isinstance(data, list) for name in row}
        if known := meanings(columns, of):
            evidence = {**evidence, "columns": known}
        text = json_text(envelope(data, evidence, following))
        write_text(f"{msgspec.json.format(text, indent=1)}\n", self.path)

    def write_table(self, table: pa.Table) -> None:
        """Write an Arrow table of numbers and text as csv, json or parquet.

        Raises:
            UsageError: Parquet, which is binary, would go to a terminal.
        """
        if self.form == "csv":
            changes = [clean] if self.path is None else []
            changes += [_no_formula] if self.csv_safe else []
            write_parts(_csv_parts(table, changes), self.path)
        elif self.form == "json":
            write_parts(_json_parts(table), self.path)
        elif self.form == "parquet":
            from pyarrow import parquet

            if self.path is not None:
                with _opened(self.path) as file:
                    parquet.write_table(table, file)
                return
            with open_binary(None, "Parquet") as write:
                content = io.BytesIO()
                parquet.write_table(table, content)
                write(content.getvalue())
        else:
            msg = f"no such form of a frame: {self.form}"
            raise ValueError(msg)


def ending_of(path: Path) -> str:
    """Return the ending of a name that says the form, in small letters; one of `.gz` is apart."""
    name = path.name.lower().removesuffix(_GZIP)
    return Path(name).suffix


def check_free(path: Path | None, *, force: bool) -> None:
    """Raise unless `path` may be written.

    Raises:
        OutputExistsError: something is there, and `force` is not set.
        Pyprof2Error: its folder does not exist, or it is a folder itself.
    """
    if path is None:
        return
    if isinstance(path, Address):
        from pyprof2.store.remote import check_address

        check_address(path, force=force)
        return
    if path.is_dir():
        msg = f"{path}: is a directory; name a file"
        raise Pyprof2Error(msg)
    if _is_special(path):
        return
    if path.exists() and not force:
        msg = f"{path}: exists; give another name, or --force to replace it"
        raise OutputExistsError(msg)
    if not path.parent.is_dir():
        msg = f"{path}: there is no directory {path.parent}; make it first"
        raise Pyprof2Error(msg)


def write_text(text: str, path: Path | None) -> None:
    """Write `text` to `path`, or to stdout."""
    write_parts([text], path)


def write_parts(parts: Iterable[str | pa.Buffer], path: Path | None) -> None:
    """Write texts, or what they are in UTF-8, one after another, to `path` or to stdout."""
    if path is None:
        for part in parts:
            sys.stdout.write(part if isinstance(part, str) else part.to_pybytes().decode())
        return
    with _opened(path) as file:
        for part in parts:
            file.write(part.encode() if isinstance(part, str) else part)


def _is_special(path: Path) -> bool:
    """Whether `path` is a device or a pipe: it is written into, and never replaced."""
    return path.exists() and not path.is_file()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name beside `path` to write to; it becomes `path` when all is written."""
    if isinstance(path, Address):
        from pyprof2.store.remote import written

        with written(path, force=True) as local:
            yield local
        return
    if _is_special(path):
        yield path
        return
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:  # it would name the temporary file
        raise OSError(error.errno, error.strerror, str(path)) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp lets only the owner read; the mask of other files is known only by setting it.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Give a file that becomes `path` when all is written: compressed where its name says so."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        if not path.name.lower().endswith(_GZIP):
            yield file
            return
        from isal import igzip

        # Without the time: the same content is the same file.
        kind: Any = igzip.GzipFile  # without types
        compressed = kind("", "wb", fileobj=file, mtime=0)
        with io.BufferedWriter(compressed, _GZIP_BYTES) as buffered:
            yield buffered


def _csv_parts(table: pa.Table, changes: Iterable[Callable[[str], str]]) -> Iterator[pa.Buffer]:
    """Give the CSV in parts: text, after the changes to it, always in quotes, null as nothing."""
    import pyarrow as pa
    from pyarrow import csv

    batches = table.to_batches(max_chunksize=_ROWS_AT_A_TIME)
    if not batches:  # the header is written all the same
        batches = [pa.RecordBatch.from_pylist([], schema=table.schema)]
    for i, batch in enumerate(batches):
        part = pa.BufferOutputStream()
        arrays = []
        for column in batch.columns:
            if not _is_text(column.type):
                arrays.append(column)
                continue
            # Each distinct text is changed once.
            coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            texts = coded.dictionary.to_pylist()
            for change in changes:
                texts = [change(text) for text in texts]
            arrays.append(pa.array(texts, pa.string()).take(coded.indices))
        plain = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
        csv.write_csv(plain, part, csv.WriteOptions(include_header=i == 0))
        yield part.getvalue()


def _no_formula(text: str) -> str:
    """Return `text`, after an apostrophe if a spreadsheet would compute it."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    )


def _json_parts(table: pa.Table) -> Iterator[str | pa.Buffer]:
    """Give an array of objects in parts, an object on each line."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = [json_text(name) for name in table.column_names]
    before = "[\n"
    for batch in table.to_batches(max_chunksize=_ROWS_AT_A_TIME):
        parts: list[Any] = []
        for key, column in zip(keys, batch.columns, strict=True):
            parts += [f"{',' if parts else '{'}{key}:", _json_values(column)]
        lines = pc.binary_join_element_wise(*parts, "}", "")
        together = pa.ListArray.from_arrays([0, len(lines)], lines)
        yield before
        yield pc.binary_join(together, ",\n")[0].as_buffer()
        before = ",\n"
    yield "\n]\n" if before == ",\n" else "[]\n"


def json_text(value: Any) -> str:
    """Return a value as JSON on one line, with escapes where a terminal would act."""
    import msgspec

    encoded = msgspec.json.encode(value).decode()
    if encoded.isprintable():
        return encoded
    # Outside of ASCII a character stands only in strings, where its escape is the same text.
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in encoded)


def _json_values(column: pa.Array) -> pa.Array:
    """Return the values as JSON text, each distinct text encoded once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if _is_text(column.type):
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        texts = [json_text(text) for text in column.dictionary.to_pylist()]
        values = pa.array(texts, pa.string()).take(column.indices)
    elif pa.types.is_floating(column.type):
        # JSON has no word for infinity.
        values = pc.if_else(pc.is_finite(column), column, None).cast(pa.string())
    else:
        values = column.cast(pa.string())
    return values.fill_null("null")


@contextlib.contextmanager
def open_binary(path: Path | None, what: str) -> Iterator[Callable[[bytes], object]]:
    """Give the function that writes bytes to `path`, or to stdout.

    Args:
        path: the file, which is there when all was written; None: stdout.
        what: the name of the content, for the message.

    Raises:
        UsageError: the bytes would go to a terminal.
    """
    if path is not None:
        with _opened(path) as file:
            yield file.write
        return
    if sys.stdout.isatty():
        refuse(f"{what} is for programs, and stdout is a terminal; give -o FILE")
    sys.stdout.flush()
    yield sys.stdout.buffer.write


SCHEMA: Final = 1
"""The version of the form; it rises where a reader of the old one would go wrong."""
NOT_RECORDED: Final = "not recorded"
NOT_KNOWN: Final = "not known"

_MADE: Final = frozenset((
    "flops", "bytes", "flops_lo", "flops_hi", "bytes_lo", "bytes_hi", "tflops", "gbps", "intensity",
    "roofline_pct", "bound", "mfu_pct", "hfu_pct", "tensor_core", "tensor_core_pct",
    "lo_ns", "hi_ns", "delta_pct", "expected_ns", "at_stake_lo_ns", "at_stake_hi_ns",
))  # fmt: skip
"""No profiler records them: where one is null, it could not be worked out."""
_TEXT: Final = 240
_LACKS: Final = 6


def envelope(
    data: Any, evidence: Mapping[str, Any], following: Sequence[Any], *, brief: bool = False
) -> dict[str, Any]:
    """Return an answer.

    Args:
        data: the answer itself.
        evidence: what its numbers rest on, see `evidence_of`.
        following: calls that lead on, see `call`.
        brief: whether long text is cut and numbers have six digits.
    """
    said = {"data": data, "evidence": evidence, "next": following}
    return {"schema": SCHEMA} | {name: _plain(each, name, brief) for name, each in said.items()}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """Return a call that can follow: a tool of `pyprof2 mcp`, or the command of that name."""
    return {"call": tool, "arguments": arguments}


def _plain(value: Any, name: str, brief: bool) -> Any:  # noqa: FBT001
    """Return a value as JSON has it, null in words."""
    import numpy as np
    import pandas as pd

    if isinstance(value, dict):
        return {str(key): _plain(each, str(key), brief) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, name, brief) for each in value]
    if isinstance(value, str):
        text = clean(value)
        more = len(text) - _TEXT if brief else 0
        return text if more <= 0 else f"{text[:_TEXT]}… ({more} more characters)"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Fraction):
        value = float(value)
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return NOT_KNOWN if name in _MADE else NOT_RECORDED
    return float(f"{value:.6g}") if brief and isinstance(value, float) else value


def meanings(columns: Iterable[Column], names: Iterable[str]) -> dict[str, str]:
    """Return what each of some columns means, with its unit; nothing of those without a meaning."""
    known = {column.name: column for column in columns}
    chosen = [known[name] for name in names if name in known and known[name].meaning]
    return {each.name: f"{each.meaning}{f' [{each.unit}]' if each.unit else ''}" for each in chosen}


_SOURCES: Final = 8
"""Files that an answer names: a job may have a thousand."""


def evidence_of(run: Run, columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what the numbers of a recording rest on: its recorder, how much is known, the lacks.

    Args:
        run: the recording.
        columns: what each column of the answer means.
    """
    summary = run.summary
    lacks = [row for row in run.check().to_dict("records") if row["severity"] != "info"]
    names = ("linked_pct", "costed_pct", "no_gpu")
    sources = [str(each) for each in run.trace["source"].tolist()]
    more = len(sources) - _SOURCES
    found: dict[str, Any] = {
        "recording": [*sources[:_SOURCES], *([f"and {more} more"] if more > 0 else [])],
        "device": list(summary["devices"]),
        "profiler": list(summary["profilers"]),
        "coverage": {name: summary[name] for name in names},
        NOT_RECORDED.replace(" ", "_"): [
            f"{row['finding']}{f'; to have it: {advice}' if (advice := row['advice']) else ''}"
            for row in lacks[:_LACKS]
        ],
    }
    if len(lacks) > _LACKS:
        found["more_lacks"] = len(lacks) - _LACKS
    return found | ({"columns": dict(columns)} if columns else {})
