"""`pyprof2 demo`: train a small network, record it, parse the recording, show the profile."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2.capture.runner import environment
from pyprof2.cli import arguments
from pyprof2.errors import OutputExistsError
from pyprof2.reports.cells import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.reports.query import Query

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_DATA: Final = _PACKAGE / "data"
_SCRIPT: Final = "demo_train.py"
_RECORDING: Final = "demo.json.gz"
_STORE: Final = "demo.pyprof2"
_CAPTURE: Final = "demo-nsys"
_NSYS_VIEW: Final = "--by layer,direction --top 8"
_GPU: Final = {
    "gpu.json.gz": "gpu.json.gz",
    "gpu.log.gz": "dedicated_log_torch_trace_rank_0.log",
    "gpu_train.txt": "t.py",
}
"""The files of the recording of a GPU, and their names as torch leaves them."""
_GPU_STORE: Final = "gpu.pyprof2"
_GPU_VIEWS: Final = ("--by op --top 8", "--by source --top 8")
_VIEWS: Final = ("--by op --top 8", "--by layer --top 8", "--sort dur_us --top 8")


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "demo",
        help="train a small network, record it, and show its profile",
        description="Train a small network on the GPU, or on the CPU if there is none; record "
        "it, parse the recording, and show the profile. Without torch a recording of the same "
        "network serves, which comes with pyprof2. Where nsys is installed, it records the same "
        "script too. With --gpu nothing runs: it shows a recording of a training on an H200.",
    )
    arguments.flags(command, gpu="show the recording of a GPU that comes with pyprof2")
    command.add_argument(
        "-o",
        "--output",
        type=arguments.output_folder,
        metavar="DIR",
        help="keep the script, recording and store in DIR",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Record, parse and show the example."""
    from pyprof2.api.run import load, parse
    from pyprof2.cli import prof

    files = (_SCRIPT, _RECORDING, _STORE, f"{_CAPTURE}.nsys-rep", f"{_CAPTURE}.sqlite")
    with _folder(args.output, (*_GPU.values(), _GPU_STORE) if args.gpu else files) as folder:
        recording = _unpack_gpu(folder) if args.gpu else _record(folder, quiet=args.quiet)
        print(f"$ pyprof2 parse {recording.name}")
        name = _GPU_STORE if args.gpu else _STORE
        loaded = load(parse([recording], folder / name))
        for options in _GPU_VIEWS if args.gpu else _VIEWS:
            print(f"\n$ pyprof2 prof {name} {options}\n")
            prof.show(loaded, _query(options, name))
        if not args.gpu:
            _show_nsys(folder, quiet=args.quiet)
    if args.output is None:
        print("\nTo keep the script, the recording and the store: pyprof2 demo -o DIR")
    else:
        place = shlex.quote(str(args.output))
        print(f"\nThe script, the recording and the store are in {place}")


@contextlib.contextmanager
def _folder(wanted: Path | None, names: Sequence[str]) -> Iterator[Path]:
    """Give the folder to work in, which is deleted afterwards if nobody asked for it.

    Raises:
        OutputExistsError: what the demo writes is there already.
    """
    if wanted is None:
        with tempfile.TemporaryDirectory(prefix="demo-") as folder:
            yield Path(folder)
        return
    wanted.mkdir(parents=True, exist_ok=True)
    for name in names:
        if os.path.lexists(wanted / name):
            msg = f"{wanted / name}: exists; name another folder"
            raise OutputExistsError(msg)
    yield wanted


def _unpack_gpu(folder: Path) -> Path:
    """Put the recording of a GPU into `folder`, with its script and the log of its compilation."""
    for name, own in _GPU.items():
        content = (_DATA / name).read_bytes()
        is_log = own.endswith(".log")
        (folder / own).write_bytes(gzip.decompress(content) if is_log else content)
    return folder / next(iter(_GPU.values()))


def _record(folder: Path, *, quiet: bool) -> Path:
    """Train and record in `folder`, or put the recording there that comes with pyprof2."""
    recording = folder / _RECORDING
    shutil.copyfile(_DATA / _SCRIPT, folder / _SCRIPT)
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed: this is the recording that comes with pyprof2")
    else:
        if not quiet:
            print("pyprof2: training a small network with torch", file=sys.stderr)
        print(f"$ python {_SCRIPT} {_RECORDING}")
        # A process of its own, so that this one needs no torch.
        done = subprocess.run(  # noqa: S603 - our own script
            [sys.executable, "-P", folder / _SCRIPT, recording],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = done.stderr.strip().splitlines()
        for line in lines:
            if line.startswith("pyprof2: "):  # what of the recording is missing, and why
                print(clean(line), file=sys.stderr)
        if done.returncode == 0 and recording.is_file():
            return recording
        why = (lines or [f"exit code {done.returncode}"])[-1]
        # Whose code raised is the last file of the traceback.
        files = [line.split('"')[1] for line in lines if line.startswith('  File "')]
        is_ours = bool(files) and Path(files[-1]).is_relative_to(_PACKAGE)
        whose = "a fault in pyprof2" if is_ours else "torch cannot train here"
        print(f"{whose} ({clean(why)}):")
        print("this is the recording that comes with pyprof2")
    shutil.copyfile(_DATA / _RECORDING, recording)
    return recording


def _show_nsys(folder: Path, *, quiet: bool) -> None:
    """Record the same script with Nsight Systems, where that is installed."""
    from pyprof2.api.run import load
    from pyprof2.cli import prof

    if not all(map(importlib.util.find_spec, ("torch", "nvtx"))) or not shutil.which("nsys"):
        return
    if not quiet:
        print("pyprof2: the same with nsys", file=sys.stderr)
    words = ["capture", "--nsys", "-o", _CAPTURE, _SCRIPT]
    print(f"\n$ pyprof2 {shlex.join(words)}")
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-P", "-m", "pyprof2", *words],
        cwd=folder, capture_output=True, text=True, check=False, env=environment(),
    )  # fmt: skip
    export = folder / f"{_CAPTURE}.sqlite"
    if done.returncode or not export.is_file():
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        print(f"nsys cannot record here ({clean(why)})")
        return
    print(f"$ pyprof2 prof {export.name} {_NSYS_VIEW}\n")
    prof.show(load(export), _query(_NSYS_VIEW, export.name))


def _query(options: str, file: str = _STORE) -> Query:
    from pyprof2.cli import prof
    from pyprof2.cli.query import read_query

    parser = argparse.ArgumentParser()
    prof.add_to(parser.add_subparsers())
    args = parser.parse_args(["prof", file, *options.split()])
    return read_query(args, args.by)
