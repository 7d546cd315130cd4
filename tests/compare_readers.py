"""The command line of what compares two readers on damaged files."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def compare(
    what: str, readers: str, differences: Callable[[range, Path], Iterable[tuple[int, Any]]] | None
) -> int:
    """Say on which damaged files two readers differ; return 1 if they do on any.

    Args:
        what: the files, in words.
        readers: what reads them, in words.
        differences: yields number and difference of those files, of some numbers, that the readers
            see differently; None: only one reader was built.
    """
    parser = argparse.ArgumentParser(description=f"Compare the {readers} on damaged {what}.")
    parser.add_argument("--count", type=int, default=2000, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the first; default: %(default)s")
    args = parser.parse_args()
    if differences is None:
        print(f"only one of the {readers} was built: nothing to compare")
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed, found in differences(range(args.seed, args.seed + args.count), Path(folder)):
            failed += 1
            print(f"--seed {seed} --count 1: {found}")
    print(f"{args.count} damaged {what} seen by two {readers}, {failed} of them differently")
    return int(failed > 0)
