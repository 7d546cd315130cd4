"""Parsing with somebody else's workers: executors, a Dask cluster, one that loses a worker."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

import pyprof2
from pyprof2.cli import main
from pyprof2.errors import TraceError, UsageError
from pyprof2.store.folder import STORED, read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEMO: Final = Path(pyprof2.__file__).parent / "data" / "demo.json.gz"
RANKS: Final = 4


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the recording of the package as that of several ranks."""
    folder = tmp_path_factory.mktemp("job")
    for rank in range(RANKS):
        shutil.copy(DEMO, folder / f"rank{rank}.json.gz")
    return folder


@pytest.fixture(scope="module")
def alone(traces: Path) -> Path:
    """Return the store that this process makes of them."""
    return pyprof2.parse(traces, traces.parent / "alone")


def _assert_same(store: Path, expected: Path) -> None:
    for name in STORED:
        assert read_table(store, name).equals(read_table(expected, name)), name
    assert (
        pyprof2.load(store).tables.manifest["ranks"]
        == pyprof2.load(expected).tables.manifest["ranks"]
    )
    assert not list(store.glob("scratch*"))


@pytest.mark.minutes
@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_any_executor_gives_the_same_store(
    kind: Callable[[int], Executor], traces: Path, alone: Path, tmp_path: Path
) -> None:
    with kind(2) as executor:
        store = pyprof2.parse(traces, tmp_path / "s", executor=executor)

    _assert_same(store, alone)


def test_an_executor_is_left_open_where_a_file_is_bad(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text("hello")

    with ThreadPoolExecutor(2) as executor:
        with pytest.raises(TraceError, match=r"rank0.json: not a trace"):
            pyprof2.parse([tmp_path], tmp_path / "s", executor=executor)

        assert executor.submit(len, "abc").result() == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank0.json", "rank1.json"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Give a Dask cluster of two processes."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as started:
        yield started


@pytest.mark.minutes
def test_a_dask_cluster_gives_the_same_store(
    cluster: Any, traces: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its workers work in another folder: what is named from here must still be found.
    monkeypatch.chdir(traces.parent)
    address = cluster.scheduler_address

    assert main(["-q", "parse", traces.name, "-o", str(tmp_path / "s"), "--dask", address]) == 0

    _assert_same(tmp_path / "s", alone)


@pytest.mark.minutes
def test_a_worker_that_is_killed_in_the_middle_changes_nothing(
    cluster: Any, traces: Path, alone: Path, tmp_path: Path
) -> None:
    from distributed import Client

    with Client(cluster.scheduler_address) as client:
        client.wait_for_workers(2)
        victim = next(iter(client.run(os.getpid).values()))
        killer = threading.Thread(target=_kill_when_it_reads, args=(victim, tmp_path))
        killer.start()
        store = pyprof2.parse(traces, tmp_path / "s", executor=client.get_executor())
        killer.join()
        client.wait_for_workers(2)
        assert victim not in client.run(os.getpid).values()

    _assert_same(store, alone)


def _kill_when_it_reads(pid: int, folder: Path) -> None:
    """Kill a process once both have begun to read."""
    end = time.monotonic() + 60
    while len(list(folder.glob(".s.*/scratch-*/*"))) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.minutes
def test_a_dask_dataframe_has_the_rows_and_types_of_pandas(cluster: Any, alone: Path) -> None:
    from distributed import Client

    run = pyprof2.load(alone)
    with Client(cluster.scheduler_address):
        ops = run.dask("ops")
        by_rank = ops.groupby("rank")["dur_ns"].sum().compute()
        found = ops.compute()

    assert ops.npartitions == RANKS
    assert by_rank.to_dict() == run.ops.groupby("rank")["dur_ns"].sum().to_dict()
    for name in run.ops:
        plain = run.ops[name].astype(object)
        pd.testing.assert_series_equal(found[name].astype(object).reset_index(drop=True), plain)
        if not isinstance(run.ops[name].dtype, pd.CategoricalDtype):
            assert found[name].dtype == run.ops[name].dtype


def test_a_table_that_there_is_not_is_named(tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text('{"traceEvents": []}')
    run = pyprof2.load(pyprof2.parse(tmp_path / "net.json"))

    with pytest.raises(UsageError, match=r"no table 'kernel' in a store; there are .*kernels"):
        run.dask("kernel")


@pytest.mark.minutes
def test_no_scheduler_is_one_line_and_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    trace = shutil.copy(DEMO, tmp_path)

    assert main(["parse", str(trace), "--dask", "tcp://127.0.0.1:1"]) == 2

    said = capsys.readouterr().err
    assert "--dask tcp://127.0.0.1:1: no scheduler of Dask answers there" in said
