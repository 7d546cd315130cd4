"""What a store of many ranks holds already, so that parsing them again does only what is missing.

A rank is kept where nothing but its own recording made it what it is: it says its number itself,
and its file has the content of then. Otherwise all are parsed.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2 import __version__
from pyprof2.errors import StoreError
from pyprof2.problems import STRANGE_FILES
from pyprof2.rank_tables import RankTables
from pyprof2.ranks import claimed
from pyprof2.store import STORED, TOOL, is_store, read_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.recording import Recording

CLAIMED: Final = "claimed"
"""In the manifest: whether a rank's number is said by its recording or the name of its file."""


@dataclass(frozen=True)
class Kept:
    """The ranks of a store that need not be parsed again.

    Attributes:
        store: its folder.
        sources: what the manifest says of their files, by name.
        ranks: what it says of each.
    """

    store: Path
    sources: Mapping[str, Mapping[str, Any]]
    ranks: Sequence[Mapping[str, Any]]

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


NOTHING_KEPT: Final = Kept(Path(), {}, ())


def find_kept(store: Path, files: Sequence[Path], root: str | None) -> Kept | None:
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
    same = {n: s for n, s in sources.items() if _is_unchanged(names[n], s)}
    if len(same) == len(files):
        return Kept(store, same, manifest["ranks"])
    kept = [entry for entry in manifest["ranks"] if entry.get("source") in same]
    numbers = [entry["rank"] for entry in manifest["ranks"]]
    alone = len(set(numbers)) == len(numbers) == len(sources)
    if not alone or not all(entry.get(CLAIMED) for entry in manifest["ranks"]):
        return None
    return Kept(store, same, kept)


def _is_unchanged(file: Path, source: Mapping[str, Any]) -> bool:
    return file.stat().st_size == source["bytes"] and digest_of(file) == source["sha256"]


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
