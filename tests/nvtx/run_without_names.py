"""Run a training with a torch that lacks a private name, for each of several: a server of forks.

`main` reads pairs of a way and a name from stdin, as JSON, and writes what each run did. Torch is
imported once. Each run is a process that is forked then, in which the name is deleted before
pyprof2 is imported; where torch itself needs it, pyprof2 alone cannot see it.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec  # noqa: F401 -- imported once for all
import numpy as np  # noqa: F401
import nvtx  # noqa: F401
import torch
import torch.multiprocessing.reductions
import torch.utils.data.dataloader
from torch.autograd import profiler_legacy  # noqa: F401
from torch.profiler import profile

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = str(Path(__file__).with_name("train_small.py"))
INTERNALS = "pyprof2.nvtx.internals"


def fork(run: Callable[[], object], stderr: Path) -> int:
    """Return the exit code of a process that runs a function, as a program."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    file = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 2)
    os.dup2(file, 1)
    code = 0
    try:
        run()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:  # noqa: BLE001 -- as Python
        sys.excepthook(*sys.exc_info())
        code = 1
    with contextlib.suppress(Exception):
        sys.stderr.flush()
    os._exit(code)


def owner_of(name: str) -> tuple[Any, str]:
    *path, last = name.split(".")
    found: Any = torch
    for word in path:
        found = getattr(found, word)
    return found, last


def hide(name: str) -> None:
    """Have pyprof2 see no such name; all its lookups of private names are in one module."""
    owner, last = owner_of(name)

    def find(of: Any, attribute: str, *default: Any) -> Any:
        if of is owner and attribute == last:
            if default:
                return default[0]
            raise AttributeError(attribute)
        return getattr(of, attribute, *default)

    class Finder:
        @staticmethod
        def find_spec(wanted: str, *_: Any) -> Any:
            if wanted != INTERNALS:
                return None
            sys.meta_path.remove(Finder)
            spec = util.find_spec(wanted)
            assert spec is not None
            assert spec.loader is not None
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                module.getattr = find
                execute(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
            return spec

    sys.meta_path.insert(0, Finder)


def delete(name: str) -> None:
    owner, last = owner_of(name)
    delattr(owner, last)


def plain(result: Path) -> None:
    sys.argv = [SCRIPT, str(result)]
    runpy.run_path(SCRIPT, run_name="__main__")


def profiled(result: Path) -> None:
    assert torch.ops.c10d.allreduce_.default is not None
    with profile():
        plain(result)


def run_in(way: str, folder: Path) -> None:
    result = str(folder / "result")
    if way == "init":
        import pyprof2

        pyprof2.init(cpu_peaks=False, energy=False)
        plain(Path(result))
        return
    from pyprof2.capture import script

    trace = [] if way == "nsys" else ["--trace", str(folder / "trace.json")]
    if way == "nsys":
        os.environ["PYPROF2_OBSERVER"] = "0"  # where nobody listens nothing would be marked
    memory = ["--memory"] if way == "memory" else []
    script.main([*trace, *memory, SCRIPT, result])


def without(name: str, way: str, folder: Path, *, is_deleted: bool) -> None:
    if name:
        (delete if is_deleted else hide)(name)
    run_in(way, folder)


def main(folder: Path) -> None:
    """Run what stdin names, and write to stdout what came of it.

    Args:
        folder: for files.
    """
    pairs: list[tuple[str, str]] = json.load(sys.stdin)
    result = folder / "result"

    def of(code: int, how: str) -> dict[str, Any]:
        text = (folder / "stderr").read_text()
        trace = folder / "trace.json"
        found = {
            "code": code, "stderr": text.splitlines(), "how": how,
            "result": result.read_bytes().hex() if result.exists() else None,
            "ops": trace.read_text().count("aten::addmm") if trace.exists() else None,
        }  # fmt: skip
        for path in (result, trace):
            path.unlink(missing_ok=True)
        return found

    def probe(name: str) -> bool:
        """Return whether torch itself trains, and profiles, without a name."""

        def run() -> None:
            delete(name)
            profiled(result)

        code = fork(run, folder / "stderr")
        whole = of(code, "")
        return (whole["code"], whole["result"]) == (expected["code"], expected["result"])

    with contextlib.suppress(SystemExit):
        plain(result)  # what it imports, all have
    expected = of(fork(lambda: plain(result), folder / "stderr"), "plain")
    found = {"plain": expected}
    deletable: dict[str, bool] = {}
    for way, name in pairs:
        is_deleted = deletable.setdefault(name, bool(name) and probe(name))
        code = fork(
            lambda name=name, way=way, is_deleted=is_deleted: without(  # type: ignore[misc]
                name, way, folder, is_deleted=is_deleted
            ),
            folder / "stderr",
        )
        found[f"{way} {name}"] = of(code, "deleted" if is_deleted else "hidden")
    json.dump(found, sys.stdout)
