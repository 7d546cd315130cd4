"""Whether two versions of pyprof2 write the same stores, of every trace, row by row.

Usage: python -m benchmarks.same_stores make FOLDER [TRACE …]
       python -m benchmarks.same_stores compare FOLDER FOLDER

`make` parses each trace with each scanner into a folder, by default all traces that the tests know.
`compare` says which tables differ, and fails if any does. What changes with the time of a run, and
not with what was read, is in no table but `sources` and `code` of the manifest; what only one
version says of a rank, and the sizes of tables in memory, are not compared either.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.traces import SHARED
from pyprof2.api.run import parse
from pyprof2.errors import Pyprof2Error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCANNERS: Final = {"compiled": "0", "pure": "1"}
"""The values of PYPROF2_PURE that choose them."""


def main() -> int:
    """Make stores, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("make", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("paths", type=Path, nargs="*")
    args = parser.parse_args()
    if args.what == "make":
        return _make(args.folder, args.paths or _all_traces())
    differences = list(differing(args.folder, *args.paths))
    print("\n".join(differences) or "all are the same")
    return int(bool(differences))


def _all_traces() -> list[Path]:
    found = (p for p in SHARED.rglob("*") if p.name.endswith((".json.gz", ".json", ".sqlite")))
    return sorted(found)


def _make(folder: Path, traces: Sequence[Path]) -> int:
    """Parse in this process, which is faster than one process for each."""
    for scanner, value in SCANNERS.items():
        os.environ["PYPROF2_PURE"] = value
        for trace in traces:
            if scanner == "pure" and trace.suffix == ".sqlite":
                continue
            store = folder / f"{scanner}-{trace.name}.pyprof2"
            try:
                parse(trace, store, force=True)
            except Pyprof2Error as error:  # that both versions refuse is the same, too
                store.with_suffix(".refused").write_text(str(error))
    return 0


def differing(one: Path, other: Path) -> Iterator[str]:
    """Yield what differs between two folders of stores, in words."""
    names = [{path.name for path in folder.iterdir()} for folder in (one, other)]
    yield from (f"{name}: in one of them" for name in sorted(names[0] ^ names[1]))
    for name in sorted(names[0] & names[1]):
        if not name.endswith(".refused"):
            yield from (f"{name}: {what}" for what in _differing_stores(one / name, other / name))


def _differing_stores(one: Path, other: Path) -> Iterator[str]:
    files = [{p.relative_to(s) for p in s.rglob("*.parquet")} for s in (one, other)]
    yield from (f"{file}: in one of them" for file in sorted(files[0] ^ files[1]))
    for file in sorted(files[0] & files[1]):
        tables = [pq.read_table(store / file).unify_dictionaries() for store in (one, other)]
        for column in tables[0].column_names:
            if not _same(tables[0][column], tables[1][column]):
                yield f"{file}: column {column}"
        if tables[0].schema != tables[1].schema:
            yield f"{file}: schema"
    manifests = [json.loads((store / "manifest.json").read_text()) for store in (one, other)]
    for left, right in zip(*(manifest["ranks"] for manifest in manifests), strict=True):
        both = sorted((left.keys() & right.keys()) - {"table_bytes"})
        yield from (f"manifest: {name} of a rank" for name in both if left[name] != right[name])


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Whether values are the same; a text is, whatever its code, and no number is as no number."""
    left, right = (
        column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        for column in (one, other)
    )
    if left.type == pa.float64():
        left, right = (
            column.combine_chunks().fill_null(0).view(pa.int64()) for column in (left, right)
        )
        same_nulls = one.is_valid().equals(other.is_valid())
        return bool(same_nulls and left.equals(right))
    return bool(left.equals(right))


if __name__ == "__main__":
    sys.exit(main())
