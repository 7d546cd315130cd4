"""The annotation begins and ends cleanly, in every thread and process."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import profiler
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import pyprof2.nvtx
from pyprof2.errors import UsageError
from pyprof2.nvtx import init, shutdown
from pyprof2.nvtx.annotation import current_session, start
from pyprof2.nvtx.internals import dispatch_modes
from pyprof2.nvtx.options import Options
from tests.nvtx.recorder import Recorder
from tests.nvtx.scenarios import Shared

ROOT = Path(__file__).resolve().parents[2]


def hooks_of_torch() -> dict[str, Any]:
    """Return everything that the annotation changes in torch and in Python."""
    modules = nn.modules.module
    return {
        "modes": dispatch_modes(),
        "function modes": torch._C._len_torch_function_stack(),
        "module call": nn.Module._call_impl,
        "module hooks": [
            dict(modules._global_forward_hooks), dict(modules._global_forward_pre_hooks)
        ],
        "optimizers": dict(torch_optimizer._global_optimizer_post_hooks),
        "optimizers before": dict(torch_optimizer._global_optimizer_pre_hooks),
        "data loaders": _BaseDataLoaderIter.__next__,
        "threads": getattr(threading.Thread, "_bootstrap_inner"),  # noqa: B009 -- private
        "profiler": [profiler._run_on_profiler_start, profiler._run_on_profiler_stop],
        "flags": torch.utils._python_dispatch.is_in_torch_dispatch_mode(),
    }  # fmt: skip


def test_shutdown_leaves_torch_as_it_was(way: str) -> None:
    before = hooks_of_torch()
    start(Options(), Recorder().sink())
    during = hooks_of_torch()
    Shared()(torch.ones(2, 8)).sum().backward()
    shutdown()

    assert hooks_of_torch() == before
    same = [name for name in before if during[name] == before[name]]
    kept = ["function modes", "module hooks", "optimizers before", "flags"]
    assert same == (["modes", *kept] if way == "observer" else kept)


@pytest.mark.slow
def test_shutdown_leaves_dynamo_as_it_was() -> None:
    code = """
import torch, torch._dynamo.utils as before
from pyprof2.nvtx import init, shutdown
call = torch.nn.Module._call_impl
init()
assert before.unpatched_nn_module_call_impl is not call
import torch._dynamo.variables.nn_module as after
shutdown()
assert before.unpatched_nn_module_call_impl is after.unpatched_nn_module_call_impl is call
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.usefixtures("by_mode")
def test_shutdown_inside_a_mode_of_the_user_takes_only_ours() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    start(Options(), Recorder().sink())
    with FlopCounterMode(display=False) as counter:
        assert len(dispatch_modes()) == 2
        shutdown()
        assert len(dispatch_modes()) == 1
        torch.ones(2, 3) @ torch.ones(3, 4)

    assert counter.get_total_flops() == 2 * 2 * 3 * 4
    assert dispatch_modes() == []


@pytest.mark.usefixtures("way")
def test_init_inside_a_mode_of_the_user_goes_below_it() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    recorder = Recorder()
    with FlopCounterMode(display=False) as counter:
        start(Options(), recorder.sink())
        torch.ones(2, 3) @ torch.ones(3, 4)

    torch.ones(2)
    assert counter.get_total_flops() == 2 * 2 * 3 * 4
    assert [item.op for item in recorder.ops()] == [
        "aten::ones",
        "aten::ones",
        "aten::mm",
        "aten::ones",
    ]


def test_init_again_does_nothing_or_changes_the_options(way: str) -> None:
    init()
    first = current_session()
    init()
    assert current_session() is first
    assert len(dispatch_modes()) == (way == "mode")

    init(shapes=False)
    second = current_session()
    assert second is not None
    assert second is not first
    assert not second.options.shapes
    assert len(dispatch_modes()) == (way == "mode")


@pytest.mark.parametrize("value", [True, False])
def test_the_option_of_pyprof_is_accepted(*, value: bool) -> None:
    init(enable_function_stack=value)
    session = current_session()

    assert session is not None
    assert session.options == Options()


def test_shutdown_without_init_does_nothing() -> None:
    before = hooks_of_torch()
    shutdown()

    assert hooks_of_torch() == before


@pytest.mark.usefixtures("way")
def test_open_ranges_are_closed_by_shutdown() -> None:
    recorder = Recorder()

    class Ends(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            shutdown()
            return x + 1

    start(Options(), recorder.sink())
    with pyprof2.nvtx.annotate("around"):
        result = nn.Sequential(Ends(), nn.Identity())(torch.ones(2))

    assert result.tolist() == [2, 2]
    assert recorder.is_balanced


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sink": "nsys"}, "sink is 'nsys'; it can be auto, nvtx, kineto"),
        ({"steps": 3}, "steps is 3; give a range or a set of step numbers"),
        ({"shapes": "no"}, "shapes is 'no'; it can be True or False"),
    ],
)
def test_an_option_that_makes_no_sense_is_said_in_one_line(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        init(**options)
    assert current_session() is None


def test_without_nvtx_only_the_profiler_gets_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)

    with pytest.warns(UserWarning, match="pip install nvtx; without it only torch.profiler"):
        init()
    session = current_session()
    assert session is not None
    assert session.sink is None
    assert dispatch_modes() == []
    with pytest.raises(UsageError, match="nvtx is not installed; pip install nvtx"):
        init(sink="nvtx")


@pytest.fixture
def deaf_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the package nvtx say that nobody takes ranges, as its later versions can."""
    import nvtx

    monkeypatch.setattr(nvtx._lib, "Domain", lambda _name: SimpleNamespace())
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)


@pytest.mark.usefixtures("deaf_nvtx")
def test_where_nobody_listens_ops_cost_nothing() -> None:
    init()

    assert dispatch_modes() == []


@pytest.mark.usefixtures("deaf_nvtx", "by_mode")
def test_a_profiler_that_takes_no_ranges_is_worth_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/usr/lib/profiler.so")

    with pytest.warns(UserWarning, match="pip install 'nvtx<0.2.12'"):
        init()


@pytest.mark.usefixtures("by_mode")
def test_an_nvtx_without_payloads_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    import nvtx

    def old(_message: Any, _color: Any, _category: Any) -> None: ...

    monkeypatch.setattr(nvtx._lib, "EventAttributes", old)
    with pytest.raises(UsageError, match="is too old; pip install 'nvtx>=0"):
        init(sink="nvtx")


def test_threads_are_annotated_and_left_clean(way: str) -> None:
    recorder = Recorder()
    modes: list[int] = []
    # Both live until both have run: the number of a thread that ended may be given again.
    together = threading.Barrier(2, timeout=60)

    class Own(threading.Thread):
        def run(self) -> None:
            modes.append(len(dispatch_modes()))
            Shared()(torch.ones(2, 8)).sum().backward()
            together.wait()

    def other() -> None:
        torch.ones(2).neg()
        together.wait()

    start(Options(), recorder.sink())
    workers = [Own(), threading.Thread(target=other)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    shutdown()

    assert modes == [way == "mode"]
    assert len({item.thread for item in recorder.ops()}) == 2
    assert recorder.ops("aten::neg")
    assert recorder.is_balanced


@pytest.mark.usefixtures("way")
def test_each_thread_has_a_number_in_its_payloads() -> None:
    recorder = Recorder()
    start(Options(), recorder.sink())

    def run() -> None:
        torch.ones(2, requires_grad=True).exp()

    run()
    worker = threading.Thread(target=run)
    worker.start()
    worker.join()

    payloads = [item.payload for item in recorder.ops("aten::exp")]
    assert [payload >> 40 for payload in payloads] == [0, 1]
    assert payloads[1] & ((1 << 40) - 1) == 0


@pytest.mark.usefixtures("way")
def test_a_thread_that_outlives_the_annotation_runs_on() -> None:
    recorder = Recorder()
    started, ended = threading.Event(), threading.Event()
    results = []

    def run() -> None:
        torch.ones(2).neg()
        started.set()
        ended.wait()
        results.append(torch.ones(2).exp())

    start(Options(), recorder.sink())
    worker = threading.Thread(target=run)
    worker.start()
    started.wait()
    shutdown()
    ended.set()
    worker.join()

    assert len(results) == 1
    assert recorder.ops("aten::neg")
    assert not recorder.ops("aten::exp")


class Annotated(Dataset[Tensor]):
    """Tells in each worker whether it is annotated."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([index, len(dispatch_modes()), int(current_session() is not None)])


# A test process that forks may have threads.
@pytest.mark.kept("observer-fork", "mode-spawn")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_data_loader_are_not_annotated(context: str, way: str) -> None:
    recorder = Recorder()
    start(Options(), recorder.sink())
    loader = DataLoader(Annotated(), batch_size=2, num_workers=1, multiprocessing_context=context)

    rows = torch.cat(list(loader)).tolist()

    assert sorted(rows) == [[index, 0, 0] for index in range(4)]
    assert len(recorder.markers("dataloader")) == 3
    assert len(dispatch_modes()) == (way == "mode")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_can_begin_anew(way: str) -> None:
    start(Options(), Recorder().sink())
    child = os.fork()
    if child == 0:
        recorder = Recorder()
        clean = not dispatch_modes() and current_session() is None
        start(Options(), recorder.sink())
        torch.ones(2).neg()
        shutdown()
        os._exit(0 if clean and recorder.ops("aten::neg") else 1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert len(dispatch_modes()) == (way == "mode")


@pytest.mark.usefixtures("way")
def test_nothing_keeps_models_or_tensors_alive() -> None:
    start(Options(), Recorder().sink())
    model = Shared()
    out = model(torch.ones(2, 8))
    out.sum().backward()
    kept = [weakref.ref(model), weakref.ref(out), weakref.ref(model.linear.weight)]
    del model, out
    gc.collect()

    assert [ref() for ref in kept] == [None, None, None]


def test_a_program_that_ends_without_shutdown_ends_well() -> None:
    code = """
import threading, time, torch
from pyprof2.nvtx import init
init()
threading.Thread(target=lambda: time.sleep(0.2) or torch.ones(3).sum()).start()
torch.nn.Linear(2, 2)(torch.ones(2)).sum().backward()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore:CUDA initialization", "-c", code],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


def test_init_before_and_after_other_imports_makes_no_noise() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        init()
        Shared()(torch.ones(2, 8)).sum().backward()
        shutdown()

    assert caught == []


PLANTS = """
import os
from pathlib import Path
import torch
Path("victim").write_text("mine")
Path(f".{os.getpid()}.net.json.gz").symlink_to("victim")
torch.ones(4, 4) @ torch.ones(4, 4)
"""


@pytest.mark.slow
def test_a_recording_is_written_through_no_planted_link(tmp_path: Path) -> None:
    (tmp_path / "plants.py").write_text(PLANTS)
    command = [sys.executable, "-m", "pyprof2", "capture", "-q", "--kineto", "-o", "net"]

    subprocess.run(
        [*command, "plants.py"],
        cwd=tmp_path, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "net.json.gz").is_file()
    left = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert left <= {"__pycache__"}
