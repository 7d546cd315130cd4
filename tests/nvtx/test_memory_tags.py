"""Under `init(memory=True)` a recording knows to the byte what memory is for."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint

import pyprof2
from pyprof2.analysis.memory.tags import tagged_bytes
from pyprof2.nvtx import init, shutdown
from pyprof2.nvtx.memory_tags import MemoryTags, unpack
from pyprof2.nvtx.storages import Storages
from tests.nvtx.test_harmless import PROGRAMS, same

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.analysis.memory.profile import MemoryProfile

pytestmark = pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")

Made = tuple[nn.Module, Tensor, Tensor]


class Block(nn.Module):
    """A block of a transformer: width 64, 4 heads."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(64), nn.LayerNorm(64)
        self.qkv, self.proj = nn.Linear(64, 192), nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.first(x)).split(64, -1)
        q, k, v = (part.view(4, 32, 4, 16).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(4, 32, 64))
        result: Tensor = x + self.down(functional.gelu(self.up(self.second(x))))
        return result


class Gpt(nn.Module):
    """Tied embedding of 100 words, positions, blocks, and a final norm."""

    def __init__(self, blocks: int = 1, checkpointed: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, 64), nn.Parameter(torch.zeros(32, 64))
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 100, bias=False)
        self.head.weight = self.words.weight
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        x = self.words(x) + self.places
        for at, block in enumerate(self.blocks):
            again = at in self.checkpointed
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        result: Tensor = self.head(self.norm(x)).flatten(0, 1)
        return result


def mlp() -> Made:
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    return model, torch.randn(16, 256), torch.randint(0, 10, (16,))


def cnn() -> Made:
    convolution = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    tail = (nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 10))
    model = nn.Sequential(convolution, nn.BatchNorm2d(16), *tail)
    return model, torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))


def gpt(blocks: int = 1, checkpointed: tuple[int, ...] = ()) -> Made:
    words = torch.randint(0, 100, (4, 32))
    return Gpt(blocks, checkpointed), words, torch.randint(0, 100, (4, 32)).flatten()


def train(make: Callable[[], Made], steps: int) -> None:
    model, x, y = make()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def recorded(path: Path, run: Callable[[], object]) -> MemoryProfile:
    """Return the memory of what ran under torch.profiler."""
    gc.collect()  # tensors of tests before this one, which would be freed while it records
    init(memory=True, cpu_peaks=False)
    with profile(profile_memory=True) as profiler:
        run()
    shutdown()
    profiler.export_chrome_trace(str(path / "trace.json"))
    return pyprof2.memory(path / "trace.json")


def told_at_backward(found: MemoryProfile, number: int) -> dict[str, int]:
    """Return what was tagged of when backward began for the `number`th time."""
    (curve,), (tagged,) = found.curves, found.tagged
    assert tagged is not None
    assert tagged.refuted == 0
    return tagged_bytes(curve, tagged, int(tagged.backward[number]))


TRUTH: Final[dict[str, tuple[Callable[[], Made], tuple[int, int, int, int]]]] = {
    # Parameters (and gradients), states of Adam, activations, buffers.
    "mlp": (mlp, (546_856, 1_093_728, 32_768 + 640 + 4, 0)),
    "cnn": (
        cnn, (42_856, 85_732, 2 * 65_536 + 2 * 64 + 32_768 + 16_384 + 160 + 4, 136),
    ),
    "gpt": (
        gpt,
        (
            234_240, 468_544,
            7 * 32_768 + 98_304 + 2_048 + 2 * 131_072 + 6 * 512 + 51_200 + 4, 0,
        ),
    ),
    "checkpointed": (lambda: gpt(1, (0,)), (234_240, 468_544, 150_532, 0)),
}  # fmt: skip
"""Counted by hand, and by `torch.distributed._tools.mem_tracker`."""
RANDOM_STATE: Final = 5056
"""Bytes of the state of the CPU's generator of random numbers, of MT19937."""


@pytest.mark.kept("cnn", "checkpointed")
@pytest.mark.parametrize("name", TRUTH)
def test_each_category_is_known_to_the_byte(name: str, tmp_path: Path) -> None:
    make, (parameters, state, activations, buffers) = TRUTH[name]

    found = recorded(tmp_path, lambda: train(make, 3))

    tagged = told_at_backward(found, 2)
    assert tagged["parameter"] == parameters
    assert tagged["optimizer_state"] == state
    assert tagged["activation"] == activations
    assert tagged.get("buffer", 0) == buffers
    assert tagged["output"] == 4  # the loss
    assert "gradient" not in tagged
    (curve,), (tags,) = found.curves, found.tagged
    assert tags is not None
    assert tagged_bytes(curve, tags, int(tags.moments[-1]))["gradient"] == parameters


@pytest.mark.kept("gpt", "checkpointed")
@pytest.mark.parametrize("name", TRUTH)
def test_the_rows_of_the_table_are_exact_and_say_the_same(name: str, tmp_path: Path) -> None:
    make, (parameters, state, activations, _) = TRUTH[name]

    found = recorded(tmp_path, lambda: train(make, 3))

    rows = found.rows(["category", "certainty"], "backward")
    sums = {(r.category, r.certainty): r.bytes for r in rows.itertuples()}
    assert sums["parameter", "exact"] == parameters
    assert sums["optimizer_state", "exact"] == state
    assert sums["activation", "exact"] == activations
    # The random state that checkpoint keeps is allocated in no op: that it is of forward follows
    # from the op before it, which is sometimes of none.
    unsure = {key: size for key, size in sums.items() if key[1] != "exact"}
    assert not unsure or (name == "checkpointed" and unsure == {("unknown", "none"): RANDOM_STATE})


def test_live_at_the_end_of_forward_is_what_another_tracker_counts(tmp_path: Path) -> None:
    from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType

    model, x, y = gpt()
    optimizer = torch.optim.Adam(model.parameters())
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        loss = functional.cross_entropy(model(x), y)
        counted = tracker.get_tracker_snapshot("current")[torch.device("cpu")]
        loss.backward()

    found = recorded(tmp_path, lambda: train(gpt, 3))

    tagged = told_at_backward(found, 2)
    assert tagged["activation"] + tagged["output"] == counted[_MemRefType.ACT] == 646_152
    assert tagged["parameter"] == counted[_MemRefType.PARAM]


def test_of_a_recording_that_begins_later_the_program_knows_what_was_there(
    tmp_path: Path,
) -> None:
    model, x, y = mlp()
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()
    init(memory=True, cpu_peaks=False)
    step()  # the optimizer is known from here on
    found = recorded(tmp_path, step)

    tagged = told_at_backward(found, 0)
    assert (tagged["parameter"], tagged["optimizer_state"]) == (546_856, 1_093_728)
    assert tagged["activation"] == 33_412
    assert tagged["input"] == 16_384 + 128
    # What was there before is not known on the CPU, and the table says no more than it knows.
    assert found.devices["base_bytes"].isna().all()
    assert set(found.rows(["category"], "backward")["category"]) == {"activation", "output"}


def test_a_sum_over_two_batches_counts_each_storage_once(tmp_path: Path) -> None:
    model, x, y = mlp()

    def accumulate() -> None:
        for _ in range(2):
            functional.cross_entropy(model(x), y).backward()

    found = recorded(tmp_path, accumulate)

    assert told_at_backward(found, 1)["gradient"] == 546_856
    assert told_at_backward(found, 1)["activation"] == 33_412


def test_two_forwards_before_one_backward_hold_both(tmp_path: Path) -> None:
    model, x, y = mlp()

    def twice() -> None:
        losses = [functional.cross_entropy(model(x), y) for _ in range(2)]
        (losses[0] + losses[1]).backward()

    found = recorded(tmp_path, twice)

    assert told_at_backward(found, 0)["activation"] == 2 * 33_412


class Kept(torch.autograd.Function):
    """Keeps a copy of its input beside what autograd saves."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.copied = x.clone()
        return x.neg()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        assert len(ctx.copied)
        return -grads[0]


def test_what_others_than_autograd_hold_is_no_activation(tmp_path: Path) -> None:
    model, x, y = mlp()

    found = recorded(tmp_path, lambda: functional.cross_entropy(Kept.apply(model(x)), y).backward())

    rows = found.rows(["category", "certainty"], "backward")
    sums = {(r.category, r.certainty): r.bytes for r in rows.itertuples()}
    assert sums["output", "exact"] == 640 + 4  # the copy, and the loss
    assert told_at_backward(found, 0)["activation"] == 33_412


def test_a_sparse_gradient_is_its_indices_and_values(tmp_path: Path) -> None:
    model = nn.Embedding(100, 64, sparse=True)

    found = recorded(tmp_path, lambda: model(torch.tensor([1, 2, 2])).sum().backward())

    (curve,), (tags,) = found.curves, found.tagged
    assert tags is not None
    # Three indices of 8 bytes, which are the input's own, and three rows of 64 floats.
    assert tagged_bytes(curve, tags, int(tags.moments[-1]))["gradient"] in {
        3 * 8 + 3 * 256, 3 * 256
    }  # fmt: skip


# --------------------------------------------------------------------- the hooks do no harm


def alive_after_forward(pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> bool:
    """Return whether the result of `exp` lives on when nobody has it any more."""
    x = torch.ones(4, requires_grad=True)
    gc.disable()
    try:
        with saved_tensors_hooks(pack, unpack):
            y = x.exp()
        storage = Storages()
        storage.add(y)
        del y
        return bool(list(storage.living()))
    finally:
        gc.enable()
        gc.collect()


def changed_in_place(pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> None:
    """Change what `exp` has saved, and run backward."""
    x = torch.ones(4, requires_grad=True)
    with saved_tensors_hooks(pack, unpack):
        y = x.exp()
    y.add_(1)
    y.sum().backward()


@pytest.fixture
def pack() -> Callable[[Tensor], Any]:
    """Return our hook."""
    init(memory=True, cpu_peaks=False)
    session = pyprof2.nvtx.annotation.current_session()
    assert session is not None
    found: Callable[[Tensor], Any] = MemoryTags(session)._pack
    return found


def test_the_hooks_keep_no_tensor_alive(pack: Callable[[Tensor], Any]) -> None:
    assert not alive_after_forward(pack, unpack)
    # Hooks that hand the tensor through do: this test is able to see it.
    assert alive_after_forward(lambda tensor: tensor, lambda tensor: tensor)


def test_a_change_in_place_is_still_an_error(pack: Callable[[Tensor], Any]) -> None:
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation: \[torch.FloatTenso"):
        changed_in_place(pack, unpack)
    # Hooks that hand the tensor through lose it: gradients are silently wrong.
    changed_in_place(lambda tensor: tensor, lambda tensor: tensor)


def test_the_error_is_that_of_autograd_but_for_the_op() -> None:
    def message() -> str:
        x = torch.ones(4, 2, requires_grad=True)
        y = x.exp()
        y.add_(1)
        with pytest.raises(RuntimeError) as error:
            y.sum().backward()
        return str(error.value)

    usual = message().replace(", which is output 0 of Exp,", "")
    init(memory=True, cpu_peaks=False)

    assert message() == usual


def test_a_graph_is_freed_when_nobody_has_it() -> None:
    init(memory=True, cpu_peaks=False)
    gc.disable()
    try:
        y = torch.ones(4, requires_grad=True).exp().relu().softmax(0)
        ref = weakref.ref(y)
        storage = Storages()
        storage.add(y)
        del y
        assert ref() is None
        assert not list(storage.living())
    finally:
        gc.enable()


def under_transforms() -> list[Any]:
    weight = torch.randn(3, 3, requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        return (x @ weight).exp().sum()

    x = torch.ones(2, 3)
    mapped = torch.func.vmap(loss)(x)
    mapped.sum().backward()
    gradient, hessian = torch.func.grad(loss)(x), torch.func.hessian(loss)(x[0])
    return [mapped.detach(), weight.grad, gradient.detach(), hessian.detach()]


HARMLESS: Final = dict(PROGRAMS) | {"transforms": under_transforms}


@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore:.*torch.jit"
)
@pytest.mark.parametrize("program", HARMLESS)
def test_a_program_does_what_it_does_without(program: str) -> None:
    torch.manual_seed(1)
    with profile(profile_memory=True):
        without = HARMLESS[program]()
    torch.manual_seed(1)
    init(memory=True, cpu_peaks=False)
    with profile(profile_memory=True):
        result = HARMLESS[program]()

    assert same(result, without)


def test_the_trace_has_the_ops_that_it_has_without(tmp_path: Path) -> None:
    def ops(*, memory: bool) -> list[str]:
        init(memory=memory, cpu_peaks=False)
        with profile(profile_memory=True) as profiler:
            train(lambda: gpt(1, (0,)), 1)
        shutdown()
        path = tmp_path / f"{memory}.json"
        profiler.export_chrome_trace(str(path))
        run = pyprof2.load(path)
        return [*run.ops["op"], *run.memory["bytes"].abs().astype(str)]

    ops(memory=False)  # what is allocated once and for all
    assert ops(memory=True) == ops(memory=False)


def test_shutdown_takes_the_hooks_off() -> None:
    top = torch._C._autograd._top_saved_tensors_default_hooks
    disable = torch._C._autograd._saved_tensors_hooks_disable
    backward, owners = Tensor.backward, (torch.autograd, torch.autograd.graph)
    run = [getattr(owner, "_engine_run_backward") for owner in owners]  # noqa: B009 -- untyped
    init(memory=True, cpu_peaks=False)
    assert top(True) is not None  # noqa: FBT003 -- its only argument
    shutdown()

    assert top(True) is None  # noqa: FBT003
    assert torch._C._autograd._saved_tensors_hooks_disable is disable
    assert run == [getattr(owner, "_engine_run_backward") for owner in owners]  # noqa: B009
    assert Tensor.backward is backward
