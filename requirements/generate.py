"""Write the hashes of what CI and releases install; run it with `make requirements`.

Each file here has some of the versions of `constraints.txt` or `constraints-lowest.txt`, which are
complete: with what is needed by what is needed. So pip is told to take these files and no others.

torch is in none of them. Which of its wheels is the right one is for the machine to say: the one
for CPUs is another file than the one of the same version for CUDA, on an index of its own, and
the latter needs packages that the former does not. It is installed by its version alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent
CONSTRAINTS: Final = FOLDER.parent / "constraints.txt"
LOWEST: Final = FOLDER.parent / "constraints-lowest.txt"
WITHOUT_HASH: Final = ("torch", "uv")
"""What these files leave out; uv is what writes them."""
HEAD: Final = "# Written by `make requirements`: the files that have been seen of each version.\n"
_OF_TRAINERS: Final = "# What the tests with other trainers need"
_OF_TIMM: Final = "# What the test with timm needs"


def sections() -> dict[str, list[str]]:
    """Return the requirements of each file."""
    text = CONSTRAINTS.read_text(encoding="utf-8")
    parts = re.split(r"(?m)^(?=# What )", text)
    trainers, timm = (
        "".join(part for part in parts if part.startswith(head))
        for head in (_OF_TRAINERS, _OF_TIMM)
    )
    others = "".join(part for part in parts if not part.startswith((_OF_TRAINERS, _OF_TIMM)))
    pins = _pins(others)
    return {
        "build.txt": [pin for pin in pins if pin.startswith("setuptools==")],
        "ci.txt": pins,
        "ci-integrations.txt": _pins(trainers),
        "ci-timm.txt": _pins(timm),
        "ci-lowest.txt": _pins(LOWEST.read_text(encoding="utf-8")),
    }


def _pins(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line for line in lines if line.partition("==")[0] not in WITHOUT_HASH]


def with_hashes(pins: list[str]) -> str:
    """Return the text of a file of requirements, with the hashes of all files of each version."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, found = Path(folder, "wanted.in"), Path(folder, "found.txt")
        wanted.write_text("\n".join(pins) + "\n", encoding="utf-8")
        subprocess.run(
            [
                sys.executable, "-m", "uv", "pip", "compile", wanted, "-o", found, "--quiet",
                "--no-deps", "--generate-hashes", "--universal", "--python-version", "3.11.5",
                "--no-header", "--no-annotate", "--no-emit-index-url",
            ],
            check=True,
        )  # fmt: skip
        return found.read_text(encoding="utf-8")


def main() -> None:
    """Write all files."""
    for name, pins in sections().items():
        (FOLDER / name).write_text(HEAD + with_hashes(pins), encoding="utf-8")
        print(f"requirements/{name}: {len(pins)} versions")


if __name__ == "__main__":
    main()
