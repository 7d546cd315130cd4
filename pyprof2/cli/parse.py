"""`pyprof2 parse`: turn recordings into a store."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments, messages
from pyprof2.errors import TraceError
from pyprof2.parsers.formats import FORMATS, in_words
from pyprof2.reports.cells import clean
from pyprof2.store.places import place

if TYPE_CHECKING:
    import argparse
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

_EXAMPLES: Final = """examples:
  pyprof2 parse net.nsys-rep --source-root ~/net   your lines are below ~/net
  pyprof2 parse traces/ -o job.pyprof2 --jobs 4    a file for each rank
  pyprof2 parse traces/ --capture traces/eager/    what its graphs replay"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "parse",
        help="turn recordings into a store",
        description="Read recordings, one per rank, and write the tables that all else reads. "
        "Prints the path of the store. Of several recordings those that cannot be read are left "
        "out, and the exit code is 1. Where a directory is parsed again into its store, only the "
        "recordings that this lacks are read.",
        epilog=_EXAMPLES,
    )
    command.add_argument(
        "traces",
        type=place,
        nargs="+",
        metavar="TRACE",
        help=in_words([*(known.files for known in FORMATS), "a directory of them"])
        + "; or an address of such, as s3://bucket/traces",
    )
    command.add_argument(
        "-o",
        "--output",
        type=arguments.output_folder,
        metavar="STORE",
        help="where to write, which may be an address (default: <stem>.pyprof2 beside the first "
        "trace, or in the current directory if that is far away)",
    )
    workers = command.add_mutually_exclusive_group()
    workers.add_argument(
        "--jobs",
        type=arguments.positive,
        default=1,
        metavar="N",
        help="read so many recordings at a time (default: 1)",
    )
    workers.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="read them on the Dask cluster whose scheduler is there, such as tcp://head:8786; its "
        "workers need pyprof2 and the same file system",
    )
    arguments.add(command, "source-root")
    _add_beside(command)
    arguments.flags(command, force="replace a store that is there")
    command.set_defaults(run=run)


def _add_beside(command: argparse.ArgumentParser) -> None:
    """Declare what else explains the kernels of graphs."""
    command.add_argument(
        "--torch-trace",
        type=Path,
        metavar="DIR",
        help="the folder that TORCH_TRACE named while the recording was made: what its compiled "
        "graphs are made of; or torch_compile_debug (default: these beside the recording)",
    )
    captures = command.add_mutually_exclusive_group()
    captures.add_argument(
        "--capture",
        type=Path,
        action="append",
        default=[],
        metavar="FILE|DIR",
        help="a recording of what the CUDA or HIP graphs that are replayed were captured from, or "
        "of eager steps of the same model: their kernels get its ops; may be given several times "
        "(default: the folder capture_traces beside the recording)",
    )
    arguments.flags(captures, no_capture="do not look for the folder capture_traces")


def run(args: argparse.Namespace) -> None:
    """Parse `args.traces`, and print where the store is."""
    from pyprof2.analysis.summaries.checks import problem_lines
    from pyprof2.pipeline.allocation import give_memory_back
    from pyprof2.pipeline.parsing import default_store, parse
    from pyprof2.store.folder import read_manifest
    from pyprof2.store.remote import written

    give_memory_back()
    store = default_store(args.traces[0]) if args.output is None else args.output
    with written(store, force=args.force) as local, _executor(args.dask) as executor:
        parse(
            args.traces,
            local,
            jobs=args.jobs,
            executor=executor,
            force=args.force,
            source_root=args.source_root,
            captures=args.capture,
            look_for_captures=not args.no_capture,
            torch_trace=args.torch_trace,
            progress=arguments.wants_progress(args),
        )
        manifest = read_manifest(local)
    print(clean(str(store)))
    if not args.quiet:
        messages.warn(problem_lines(manifest), store)
        messages.say(f"next: pyprof2 prof {shlex.quote(str(store))} --by op")
    if failed := manifest.get("failed"):
        count = len(failed) + len(manifest["sources"])
        msg = f"{store}: {len(failed)} of {count} recordings are left out: {failed[0]['error']}"
        raise TraceError(msg)


def _executor(address: str | None) -> AbstractContextManager[Executor | None]:
    """Return the cluster that reads the recordings; None: this machine does."""
    if address is None:
        return contextlib.nullcontext()
    from pyprof2.store.clusters import dask_executor

    return dask_executor(address)
