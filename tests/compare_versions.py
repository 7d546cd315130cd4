"""Compare what commands write with two Pythons, whose pandas, NumPy and Arrow are others.

    python -m tests.compare_versions .venv/bin/python .venv-lowest/bin/python RECORDING…

All must be the same byte for byte. Other recordings are compared with the last one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FORMATS: Final = ("csv", "json", "table")
COMMANDS: Final = (
    "prof R --by op", "prof R --by kernel", "prof R --by layer", "prof R --by step",
    "prof R --by source", "prof R --by step,direction,category", "prof R --by layer,op,signature",
    "prof R --by host_op", "lines R", "idle R", "idle R --by step,op", "advise R", "check R",
    "memory R", "energy R", "ranks R R", "ranks R R --by collective", "ranks R R --by step",
    "compare R O", "compare R O --by op,layer", "compare R O --by kernel", "whatif R", "predict R",
    "batch R O", "explain R 1",
)  # fmt: skip
"""R is the recording, O the other one."""
OTHERS: Final = (
    "prof R --pyprof", "prof R --pyprof --format csv", "export R --chrome FILE",
    "export R --perfetto FILE", "export R --speedscope FILE", "report R -o FILE",
)  # fmt: skip


def written(recording: str, other: str) -> dict[str, list[str | int]]:
    """Return the exit code of each command on a recording, and all that it writes."""
    from pyprof2.cli import main

    found: dict[str, list[str | int]] = {}
    lines = [f"{line} --format {kind}" for line in COMMANDS for kind in FORMATS]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "made.json")
        for line in [*lines, *OTHERS]:
            words = [
                {"R": recording, "O": other, "FILE": str(path)}.get(word, word)
                for word in line.split()
            ]
            said, told = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
                try:
                    code = main(words)
                except SystemExit as end:
                    code = int(end.code or 0)
            made = path.read_bytes().hex() if path.exists() else ""
            path.unlink(missing_ok=True)
            found[line] = [
                code,
                *(text.getvalue().replace(folder, "") for text in (said, told)),
                made,
            ]
    return found


def differences(pythons: list[str], recording: str, other: str) -> int:
    """Print which commands write something else with the second Python; return how many."""
    sides = []
    for python in pythons:
        options = ["-W", "error::FutureWarning", "-m", "tests.compare_versions"]
        ran = subprocess.run(
            [python, *options, recording, other],
            cwd=ROOT, check=True, capture_output=True, text=True, encoding="utf-8",
        )  # fmt: skip
        sides.append(json.loads(ran.stdout))
    others = [line for line in sides[0] if sides[0][line] != sides[1][line]]
    done = sum(found[0] == 0 for found in sides[0].values())
    print(f"{recording}: {len(sides[0])} commands, exit code 0 of {done}; {len(others)} differ")
    for line in others:
        print(f"  {line}")
        for name, *both in zip(
            ("code", "out", "err", "file"), *(s[line] for s in sides), strict=True
        ):
            if both[0] != both[1]:
                print(f"    {name} {where_they_part(*map(str, both))}")
    return len(others)


def where_they_part(first: str, second: str) -> str:
    """Return what two texts have around the first place where they differ."""
    pairs = enumerate(zip(first, second, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))
    around = slice(max(0, same - 60), same + 100)
    return f"at {same}: {first[around]!r}, {second[around]!r}"


def main() -> int:
    """Compare what two Pythons write of recordings, or write what this one gives of two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+")
    what = parser.parse_args().what
    if len(what) == 2:  # as it runs itself
        print(json.dumps(written(*what)))
        return 0
    pythons, recordings = what[:2], what[2:]
    return min(1, sum([differences(pythons, each, recordings[-1]) for each in recordings]))


if __name__ == "__main__":
    sys.exit(main())
