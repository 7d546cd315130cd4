"""Which recordings make which rank.

Recordings that one process made one after another, such as one of every hundredth step, are
segments of one rank. So are the spans of one worker: files `WORKER.SPAN.pt.trace.json` of a folder,
recorded at different times, perhaps by processes of their own.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2 import __version__
from pyprof2.errors import StoreError, TraceError
from pyprof2.problems import STRANGE_FILES
from pyprof2.recording import Recording, int_column
from pyprof2.store.folder import STORED, TOOL, is_store, read_manifest
from pyprof2.store.rank_tables import RankTables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_RANK_IN_NAME: Final = re.compile(r"rank[-_]?(\d{1,9})(?!\d)", re.IGNORECASE)
_TENSOR_RANK_IN_NAME: Final = re.compile(r"(?<![A-Za-z0-9])TP-(\d{1,9})(?!\d)")
_PIPELINE_IN_NAME: Final = re.compile(r"(?<![A-Za-z0-9])PP-[1-9]")
_WORKER: Final = re.compile(r"(.+?)(?:\.\d+)?\.pt\.trace\.json(?:\.gz)?")
"""How `tensorboard_trace_handler` names its files: the worker, then the time of the span."""

Source = tuple["Path", Recording, int | None]
"""A file, a recording in it, and the rank that either claims."""


def assign_ranks(recordings: Sequence[tuple[Path, Recording]]) -> tuple[list[list[int]], list[int]]:
    """Return the recordings of each process by position, and its rank.

    The rank is the recording's own, else that in the file's name, else by order.

    Raises:
        TraceError: two processes claim one rank.
    """
    found = [(*each, rank) for each, rank in zip(recordings, claimed(recordings), strict=True)]
    groups = _group_segments(found)
    of_group = [[found[at][2] for at in group if found[at][2] is not None] for group in groups]
    claims = [numbers[0] if numbers else None for numbers in of_group]
    twice = [rank for rank, count in Counter(claims).items() if rank is not None and count > 1]
    if twice:
        of_first = [at for at, claim in enumerate(claims) if claim == twice[0]]
        both = ", ".join(str(found[groups[at][0]][0]) for at in of_first)
        msg = f"{both}: both are of rank {twice[0]}; parse each into a store of its own"
        raise TraceError(msg)
    files = {file for file, _, _ in found}
    if len(groups) > 1 and len(files) > 1:
        sizes = {recording.trace["world_size"] for _, recording, _ in found} - {None}
        # Nothing says that they are of one job.
        if len(sizes) > 1 or any(rank is None for _, _, rank in found):
            found[groups[0][0]][1].problems[STRANGE_FILES] += len(files)
    free = (number for number in range(2 * len(claims)) if number not in claims)
    return groups, [next(free) if claim is None else claim for claim in claims]


def claimed(recordings: Sequence[tuple[Path, Recording]]) -> list[int | None]:
    """Return the rank that each recording says, or its file's name; None for neither."""
    recorded = Counter(file for file, _ in recordings)
    ranks = []
    for file, recording in recordings:
        found = None
        # A file of several processes is not that of one rank, whatever its name says.
        if recorded[file] == 1:
            found = _RANK_IN_NAME.search(file.name)
            # `TP-0` is a rank only where no other pipeline stage has a `TP-0` of its own.
            if found is None and not _PIPELINE_IN_NAME.search(file.name):
                found = _TENSOR_RANK_IN_NAME.search(file.name)
        in_name = None if found is None else int(found[1])
        ranks.append(in_name if recording.rank is None else recording.rank)
    return ranks


def spans_of(files: Sequence[Path]) -> list[int]:
    """Return the span that each recording of a rank is, by its file; they are in order of time.

    Where their names are not those of one worker's spans, all together are one.
    """
    return list(range(len(files))) if all(map(_worker, files)) else [0] * len(files)


def _worker(file: Path) -> tuple[Path, str] | None:
    """Return the folder and the worker that the name of a file says; None for other names."""
    found = _WORKER.fullmatch(file.name)
    return None if found is None else (file.absolute().parent, found[1])


def _group_segments(found: Sequence[Source]) -> list[list[int]]:
    """Return the positions of the recordings, rank by rank, in order of the first of each.

    Those of one rank are in order of time.
    """
    groups: list[list[int]] = []
    for at, source in enumerate(found):
        for group in groups:
            if all(_are_of_one_rank(found[other], source) for other in group):
                group.append(at)
                break
        else:
            groups.append([at])
    return [sorted(group, key=lambda at: _time(found[at][1])[1]) for group in groups]


def _are_of_one_rank(one: Source, other: Source) -> bool:
    """Whether two recordings are of one rank: spans of a worker, or segments of a process."""
    (file_a, a, rank_a), (file_b, b, rank_b) = one, other
    if len({rank_a, rank_b} - {None}) > 1 or a.trace["profiler"] != b.trace["profiler"]:
        return False
    if not _follow(a, b):
        return False
    worker_a, worker_b = _worker(file_a), _worker(file_b)
    if worker_a is not None and worker_b is not None:
        # A worker that was started anew is another process, whose numbers begin at 0 again.
        return worker_a == worker_b
    if not a.pids or a.pids != b.pids or len({a.host, b.host} - {None}) > 1:
        return False
    is_said = (rank_a is not None and rank_a == rank_b) or (a.host is not None and a.host == b.host)
    if not is_said:
        return False
    # Autograd's numbers go on: in a process that started anew they begin at 0 again.
    before, after = map(_forward_numbers, sorted((a, b), key=_time))
    return not len(before) or not len(after) or int(after.min()) >= int(before.max())


def _time(recording: Recording) -> tuple[bool, int, int]:
    """Return whether the times are since 1970, and the first and the last one."""
    trace = recording.trace
    start, end, base = trace["start_ns"], trace["end_ns"], trace["unix_ns"]
    return base is not None, (start or 0) + (base or 0), (end or 0) + (base or 0)


def _follow(a: Recording, b: Recording) -> bool:
    """Whether one begins after the other ended."""
    (first, second) = sorted((a, b), key=_time)
    (same_clock, _, end), (other_clock, start, _) = _time(first), _time(second)
    return same_clock == other_clock and start >= end and first.trace["start_ns"] is not None


def _forward_numbers(recording: Recording) -> Any:
    """Return the sequence numbers of the main thread's forward ops, where they are known."""
    if recording.ops_are_ranges:
        return np.empty(0, np.int64)
    table = recording.read("ops", ["tid", "sequence_nr", "forward_thread"])
    is_main = pc.is_in(table["tid"], pa.array(sorted(recording.pids), pa.int64()))
    is_forward = pc.equal(pc.fill_null(table["forward_thread"], 0), 0)
    rows = table.filter(pc.and_(is_main, is_forward))
    return int_column(rows.filter(pc.is_valid(rows["sequence_nr"])), "sequence_nr", 0)


CLAIMED: Final = "claimed"
"""In the manifest: whether a rank's number is said by its recording or the name of its file."""


@dataclass(frozen=True)
class KeptRanks:
    """The ranks of a store that need not be parsed again.

    Attributes:
        store: its folder.
        sources: what the manifest says of their files, by name.
        ranks: what it says of each.
        captures: what it says of the recordings that explain its graphs.
    """

    store: Path
    sources: Mapping[str, Mapping[str, Any]]
    ranks: Sequence[Mapping[str, Any]]
    captures: Sequence[Mapping[str, Any]] = ()

    @property
    def numbers(self) -> list[int]:
        """The numbers of the ranks."""
        return [entry["rank"] for entry in self.ranks]

    def copy(self, folder: Path) -> None:
        """Copy their tables into an unfinished store, which writes into some of them."""
        for name in STORED:
            (folder / name).mkdir(exist_ok=True)
            for number in self.numbers:
                file = f"rank-{number}.parquet"
                if (self.store / name / file).is_file():
                    shutil.copyfile(self.store / name / file, folder / name / file)

    def goes_with(self, recordings: Sequence[tuple[Path, Recording]]) -> bool:
        """Whether the ranks would be the same if these recordings had been read with them."""
        if any(STRANGE_FILES in entry["problems"] for entry in self.ranks):
            return False
        ranks = claimed(recordings)
        if None in ranks or not set(self.numbers).isdisjoint(ranks):
            return False
        sizes = {recording.trace["world_size"] for _, recording in recordings}
        for number in self.numbers:
            table = RankTables(self.store, number).read("trace", ["world_size"])
            sizes.update(table["world_size"].to_pylist())
        return len(sizes - {None}) <= 1


NOTHING_KEPT: Final = KeptRanks(Path(), {}, ())


def find_kept(store: Path, files: Sequence[Path], root: str | None) -> KeptRanks | None:
    """Return what need not be parsed again; None if the store is not one of these files.

    Args:
        store: where to look; it need not exist.
        files: the recordings.
        root: the folder of the user's own code, as it was asked for.
    """
    if not is_store(store):
        return None
    try:
        manifest = read_manifest(store)
    except StoreError:
        return None
    names = {file.name: file for file in files}
    sources = {str(s["path"]).replace("\\", "/").rpartition("/")[2]: s for s in manifest["sources"]}
    known = len(names) == len(files) and len(sources) == len(manifest["sources"])
    same_way = manifest["tool"] == f"{TOOL} {__version__}" and manifest.get("source_root") == root
    if not known or not same_way or not set(sources) <= set(names):
        return None
    same = {
        name: source
        for name, source in sources.items()
        if names[name].stat().st_size == source["bytes"]
        and digest_of(names[name]) == source["sha256"]
    }
    if len(same) == len(files):
        return KeptRanks(store, same, manifest["ranks"], manifest.get("captures", ()))
    kept = [entry for entry in manifest["ranks"] if entry.get("source") in same]
    numbers = [entry["rank"] for entry in manifest["ranks"]]
    alone = len(set(numbers)) == len(numbers) == len(sources)
    if not alone or not all(entry.get(CLAIMED) for entry in manifest["ranks"]):
        return None
    return KeptRanks(store, same, kept, manifest.get("captures", ()))


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
