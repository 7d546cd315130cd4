"""Try what a release brings: the wheel that fits this machine and the source archive, each alone.

Usage: python requirements/installed.py FOLDER [PYTHON…]

Each is installed into a fresh environment of each Python with the versions of `constraints.txt`;
there, outside of the checkout, the first commands of the README are run.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
NATIVE: Final = "import pyprof2.analysis._nest, pyprof2.parsers._scan"
COMMANDS: Final = (
    ("--version",), ("demo",), ("mcp", "--skill"), ("check", "demo.json.gz"),
    ("prof", "demo.json.gz", "--by", "layer,direction", "--top", "3"),
    ("report", "demo.json.gz", "-o", "demo.html"),
)  # fmt: skip


def tried(archive: Path, python: str) -> str:
    """Install an archive and run the commands; return the version that it has.

    Raises:
        subprocess.CalledProcessError: something failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([python, "-m", "venv", folder / "v"], check=True)
        programs = folder / "v" / ("Scripts" if os.name == "nt" else "bin")
        # Nothing of the checkout is to be imported.
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}
        kept = {k: v for k, v in os.environ.items() if k.startswith("PIP_")}
        install: list[Path | str] = [
            programs / "python",
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
        ]
        limits = {"PIP_BUILD_CONSTRAINT": str(ROOT / "constraints.txt")}
        subprocess.run(
            [*install, "-c", ROOT / "constraints.txt", archive],
            check=True, cwd=folder, env=environment | kept | limits,
        )  # fmt: skip
        recording = (ROOT / "pyprof2" / "data" / "demo.json.gz").read_bytes()
        (folder / "demo.json.gz").write_bytes(recording)
        subprocess.run([programs / "python", "-c", NATIVE], check=True, cwd=folder, env=environment)
        said = ""
        for words in COMMANDS:
            done = subprocess.run(
                [programs / "pyprof2", *words],
                check=True, cwd=folder, env=environment, capture_output=True, text=True,
            )  # fmt: skip
            said = said or done.stdout.strip()
        return said


def main() -> None:
    """Try each archive in the folder that this machine can take."""
    folder, *pythons = sys.argv[1:]
    archives = [*Path(folder).glob("*.tar.gz")]
    fits = {"linux": "linux", "darwin": "macosx", "win32": "win"}[sys.platform]
    archives += [path for path in Path(folder).glob("*.whl") if fits in path.name]
    machines = {"x86_64": "x86_64", "amd64": "amd64", "aarch64": "aarch64", "arm64": "arm64"}
    own = machines[platform.machine().lower()]
    archives = [p for p in archives if p.suffix == ".gz" or own in p.name or "universal2" in p.name]
    for python in pythons or [sys.executable]:
        for archive in archives:
            print(f"{python} {archive.name}: {tried(archive.resolve(), python)}", flush=True)
    if len(archives) < 2:
        sys.exit(f"{folder}: no wheel for this machine, or no source archive")


if __name__ == "__main__":
    main()
