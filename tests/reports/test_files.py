"""Files and streams of csv, json and parquet."""

from __future__ import annotations

import errno
import gzip
import io
import json
import stat
import sys
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.errors import UsageError
from pyprof2.reports import files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def _text(parts: Iterable[Any]) -> str:
    return "".join(each if isinstance(each, str) else each.to_pybytes().decode() for each in parts)


class Terminal(io.StringIO):
    """A stdout that somebody looks at."""

    def isatty(self) -> bool:
        """Say that it is a terminal."""
        return True


def as_json(frame: pd.DataFrame) -> str:
    """Return `frame` as JSON text."""
    return _text(files._json_parts(pa.Table.from_pandas(frame, preserve_index=False)))


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                '"key"': st.none() | st.text(st.characters(exclude_categories=["Cs"])),
                "count": st.none() | st.integers(-(2**63), 2**63 - 1),
                "rate": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "flag": st.none() | st.booleans(),
            }
        ),
        max_size=5,
    )
)
def test_json_gives_every_value_back(records: list[dict[str, object]]) -> None:
    dtypes = {'"key"': "str", "count": "Int64", "rate": "float64", "flag": "boolean"}
    frame = pd.DataFrame(
        {name: pd.Series([r[name] for r in records], dtype=dtypes[name]) for name in dtypes}
    )

    assert json.loads(as_json(frame)) == records
    assert json.loads(as_json(frame.astype({'"key"': "category"}))) == records


def test_json_writes_what_it_has_no_number_for_as_null() -> None:
    frame = pd.DataFrame({"rate": [float("inf"), float("nan"), 1.5]})

    assert [r["rate"] for r in json.loads(as_json(frame))] == [None, None, 1.5]


def test_rows_beyond_one_batch_are_in_one_array() -> None:
    count = files._ROWS_AT_A_TIME + 1
    frame = pd.DataFrame({"i": range(count)})
    text = _text(files._csv_parts(pa.Table.from_pandas(frame), []))

    assert [r["i"] for r in json.loads(as_json(frame))] == list(range(count))
    assert text.splitlines() == ['"i"', *map(str, range(count))]


def test_csv_that_somebody_looks_at_has_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"op": ["\x1b[31mred"]})
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)

    files.Target("csv").write_frame(frame)

    assert terminal.getvalue() == '"op"\n"\\x1b[31mred"\n'


def test_parquet_does_not_go_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())

    with pytest.raises(UsageError, match="give -o FILE"):
        files.Target("parquet").write_frame(pd.DataFrame({"op": ["a"]}))


def test_a_file_that_could_not_be_written_whole_is_not_there(tmp_path: Path) -> None:
    def parts() -> list[str]:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        files.write_parts((part for _ in "a" for part in parts()), tmp_path / "x.csv")

    assert list(tmp_path.iterdir()) == []


def test_a_new_file_may_be_read_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").touch()

    files.write_text("a", tmp_path / "x")

    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_name_that_ends_in_gz_is_compressed(form: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"op": ["aten::mm", "é"]})
    for name in ("net", "net.gz", "again.GZ"):
        files.Target(form, tmp_path / name).write_frame(frame)

    packed = (tmp_path / "net.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "net").read_bytes()
    # Nothing of the time or the name is in it.
    assert (tmp_path / "again.GZ").read_bytes() == packed


def test_an_error_names_the_file_that_the_user_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path / ".ops.csv.x7"))

    monkeypatch.setattr("tempfile.mkstemp", refuse)

    with pytest.raises(OSError, match="Read-only") as caught:
        files.write_text("x", tmp_path / "ops.csv")
    assert caught.value.filename == str(tmp_path / "ops.csv")


def test_columns_without_a_value_are_text_in_each_format(tmp_path: Path) -> None:
    nothing = pd.DataFrame(
        {"kind": pd.Series([None, None], dtype=object).astype("category"), "n": [1, 2]}
    )
    for frame, rows in ((nothing, 2), (nothing[:0], 0)):
        for form in ("csv", "json", "parquet"):
            path = tmp_path / f"{form}{rows}"
            files.Target(form, path).write_frame(frame)

            assert path.stat().st_size
        read = pq.read_table(tmp_path / f"parquet{rows}")
        assert (read.num_rows, str(read.schema.field("kind").type)) == (rows, "large_string")
