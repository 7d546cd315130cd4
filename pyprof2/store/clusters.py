"""Many ranks on a Dask cluster: it reads recordings, and takes a store's tables as dataframes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyprof2.columns import as_pandas
from pyprof2.errors import TraceError, UsageError, refuse, without
from pyprof2.store.folder import STORED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    import pandas as pd
    from dask.dataframe import DataFrame as DaskFrame

    from pyprof2.store.rank_tables import RankTables

_NO_DASK: Final = without("reading on a cluster", "dask", "distributed")
_PATIENCE_S: Final = 10
"""How long to wait for a scheduler."""


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Give what runs tasks on the workers of a Dask cluster.

    What a worker was at when it died is done again by others, three times if need be.

    Args:
        address: of the scheduler.

    Raises:
        UsageError: no scheduler is there, its workers lack a package, or Dask is not installed.
        TraceError: workers died again and again.
    """
    try:
        from distributed import Client, KilledWorker
    except ImportError as error:
        raise UsageError(_NO_DASK) from error
    try:
        client = Client(address, timeout=_PATIENCE_S)
    except (OSError, ValueError) as error:
        msg = f"--dask {address}: no scheduler of Dask answers there; name one as tcp://HOST:8786"
        raise UsageError(msg) from error
    with client:
        try:
            yield client.get_executor()
        except KilledWorker as error:
            msg = "workers that read a trace were killed, perhaps out of memory; give them more"
            raise TraceError(msg) from error
        except ModuleNotFoundError as error:
            msg = f"workers of {address} lack {error.name}; install pyprof2 where they run"
            raise UsageError(msg) from error


def dask_frame(ranks: Sequence[RankTables], name: str) -> DaskFrame:
    """Return a table as a Dask dataframe, a partition for each rank.

    Raises:
        UsageError: there is no such table, or Dask is not installed.
    """
    if name not in STORED:
        refuse(f"no table {name!r} in a store; there are {', '.join(STORED)}")
    try:
        from dask import dataframe
        from dask.dataframe.utils import clear_known_categories
    except ImportError as error:
        raise UsageError(_NO_DASK) from error
    # Which texts there are is known when a partition is read.
    meta = clear_known_categories(as_pandas(STORED[name].empty(), STORED[name].never_null))
    return dataframe.from_map(_frame_of, list(ranks), args=(name,), meta=meta, label=name)


def _frame_of(rank: RankTables, name: str) -> pd.DataFrame:
    return as_pandas(rank.read(name), STORED[name].never_null)
