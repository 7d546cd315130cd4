"""Processes of a job on this machine, for the programs that tests start."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def run_workers(work: Callable[..., Any], ranks: Iterable[tuple[Any, ...]]) -> int:
    """Call a function in a new process for each rank, all at once; return the worst exit code."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=arguments) for arguments in ranks]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return max(abs(worker.exitcode or 0) for worker in workers)
