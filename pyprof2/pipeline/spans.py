"""One span of each rank: a store of its own, made of the one that has all of them.

TensorBoard's handler writes a file for each time that a worker is recorded. A rank has them all; a
profile is of one, unless it is asked for others.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from pyprof2.analysis.chunked import chunks_of
from pyprof2.analysis.summaries.rows import is_engine
from pyprof2.columns import shifted
from pyprof2.pipeline.assemble import ids_after
from pyprof2.pipeline.results import write_results
from pyprof2.store.folder import read_manifest, write_table
from pyprof2.store.places import MANIFEST
from pyprof2.store.rank_tables import RankTables
from pyprof2.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from pyprof2.store.parts import TableParts

_OF_JOB: Final = ("clocks", "parts", "segments")
"""The tables that all ranks make together: they are those of all spans."""


def write_spans(store: Path, spans: Mapping[int, int], out: Path) -> dict[int, dict[str, int]]:
    """Write one span of each rank; return by rank what to add to its ids to have the store's.

    Args:
        store: that has all of them.
        spans: by rank, the number of the span.
        out: the folder of the new store.
    """
    out.mkdir()
    first_ids, sources = {}, set()
    for rank, span in spans.items():
        tables = RankTables(store, rank, own=True)
        first_ids[rank] = _first_ids(tables, span)
        down = {name: -count for name, count in first_ids[rank].items()}
        for name in (*TABLES, *_OF_JOB):
            parts = tables.parts(name)
            rows = _rows_of(parts, span, parts.table.names)
            write_table(out, name, rank, (shifted(part, down) for part in rows))
        write_results(out, rank)
        named = RankTables(out, rank, own=True).read("trace", ["source"])["source"]
        sources |= {(rank, name) for name in named.to_pylist()}
    manifest = read_manifest(store)
    entries = manifest["ranks"]
    manifest["ranks"] = [e for e in entries if (e["rank"], e.get("source")) in sources]
    (out / MANIFEST).write_text(json.dumps(manifest))
    return first_ids


def _first_ids(tables: RankTables, span: int) -> dict[str, int]:
    """Return the first ids of a span, by column: as many as the spans before it have rows."""
    before: Counter[str] = Counter()
    for name, table in TABLES.items():
        if "span" in table.names:
            rows = chunks_of(tables.parts(name), ["span"])
            before[name] = sum(pc.sum(pc.less(part["span"], span)).as_py() or 0 for part in rows)
    ids = ids_after(before)
    if not any(tables.parts(name).row_count for name in ("kernels", "copies")):
        # The rows of a profile are ops then, but for the envelopes of autograd's.
        ops = chunks_of(tables.parts("ops"), ["op", "span"])
        earlier = (part.filter(pc.less(part["span"], span)) for part in ops)
        ids["kernel_id"] = sum(int((~is_engine(part["op"])).sum()) for part in earlier)
    return ids


def _rows_of(parts: TableParts, span: int, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of a span, of a table without spans all, part by part."""
    for part in chunks_of(parts, columns):
        yield part.filter(pc.equal(part["span"], span)) if "span" in columns else part
