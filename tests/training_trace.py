"""A Kineto trace of a model in training on one or more ranks, made here, to look at in reports.

Each step loads a batch, copies it to the device, runs forward, backward and optimizer. The model
has blocks of a norm, a linear layer, a GELU and another linear layer. In step `SLOW` the loader
takes longer. Every time is a whole number of µs, so that sums can be made by eye.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.kineto_events import (
    ENGINE,
    annotation,
    copy,
    flow,
    frame,
    json_text,
    kernel,
    launch,
    memory,
    node,
    op,
    step,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kineto_events import Event

BLOCKS: Final = 6
STEPS: Final = 6
SLOW: Final = 4
LOADING: Final = 3000
LOADING_SLOWLY: Final = 9000
COMM_STREAM: Final = 20
TOKENS, WIDTH, INNER = 8192, 1024, 4096
ACTIVATION: Final = 2 * TOKENS * INNER
"""Bytes of what a layer keeps for its backward."""

GEMM: Final = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas"
GEMM_BACKWARD: Final = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize256x128x64_cublas"
POINTWISE: Final = "void at::native::vectorized_elementwise_kernel<4, at::native::{}>(int)"
NORM: Final = "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)"
ADAM: Final = "void at::native::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<4>>()"
REDUCE: Final = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass
class _Writer:
    """What has been written, and where host and streams stand, in µs.

    Attributes:
        events: of the trace.
        host: when the host does its next thing.
        free: by stream: when it is free.
        number: of the next correlation, External id and sequence.
        allocated: bytes.
        held: addresses of activations.
        slower: by how many percent this rank's kernels are slower.
    """

    slower: int = 0
    events: list[Event] = field(default_factory=list)
    host: int = 0
    free: dict[int, int] = field(default_factory=dict)
    number: int = 1
    allocated: int = 400_000_000
    held: list[int] = field(default_factory=list)

    def run(
        self, name: str, dur: int, ids: int, *, stream: int = 7, thread: int | None = None
    ) -> None:
        """Launch a kernel, which begins when its stream is free."""
        where: Event = {} if thread is None else {"tid": thread}
        self.events.append(launch(self.host + 2, self.number, dur=5, id=ids, **where))
        begins = max(self.host + 11, self.free.get(stream, 0) + 2)
        args = {
            "stream": stream, "External id": ids, "blocks per SM": 4.0, "grid": [528, 1, 1],
            "block": [256, 1, 1], "est. achieved occupancy %": 50,
        }  # fmt: skip
        took = dur * (100 + self.slower) // 100
        self.events.append(kernel(begins, took, self.number, args, name=name))
        self.free[stream] = begins + took
        self.number += 1

    def allocate(self) -> None:
        """Write the allocation of an activation."""
        self.held.append(4096 * self.number)
        self._remember(ACTIVATION, self.held[-1])

    def release(self) -> None:
        """Write that the activation that was allocated last is not needed any more."""
        self._remember(-ACTIVATION, self.held.pop())

    def _remember(self, size: int, address: int) -> None:
        self.allocated += size
        totals = {"Total Allocated": self.allocated, "Total Reserved": 2_500_000_000}
        place = {"Addr": address, "Device Id": 0, "Device Type": 1}
        self.events.append(memory(self.host, Bytes=size, **totals, **place))


def training_trace(rank: int = 0, ranks: int = 1, steps: int = STEPS) -> bytes:
    """Return the trace of a rank as JSON; the kernels of each further rank are 5 % slower."""
    out = _Writer(slower=5 * rank)
    for number in range(steps):
        _step(out, number)
    device = {
        "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000,
        "computeMajor": 9, "computeMinor": 0, "numSms": 132,
    }  # fmt: skip
    return json_text(
        out.events,
        deviceProperties=[device],
        record_shapes=1,
        with_stack=1,
        profile_memory=1,
        displayTimeUnit="ms",
        baseTimeNanoseconds=0,
        distributedInfo={"backend": "nccl", "rank": rank, "world_size": ranks},
    )


def write_ranks(folder: Path, ranks: int) -> Path:
    """Write the traces of some ranks into a folder; return it."""
    for rank in range(ranks):
        (folder / f"rank{rank}.json").write_bytes(training_trace(rank, ranks))
    return folder


def _step(out: _Writer, number: int) -> None:
    begin = out.host
    loading = LOADING_SLOWLY if number == SLOW else LOADING
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    out.events.append(annotation(name, begin, loading))
    out.events.append(frame("/home/me/train.py(31): batches", begin, loading))
    out.host += loading
    middle = out.host
    _copy_batch(out)
    forward = _forward(out)
    _backward(out, forward)
    _optimizer(out)
    end = max(out.host, *out.free.values()) + 5
    wait = launch(out.host, out.number, name="cudaDeviceSynchronize", dur=end - out.host)
    out.events.append(wait)
    out.number += 1
    out.host = end + 20
    out.events.append(frame("/home/me/train.py(52): train_step", middle, end - middle))
    out.events.append(step(number, begin, out.host - begin))
    out.host += 10


def _copy_batch(out: _Writer) -> None:
    ids = out.number
    out.events.append(op("aten::copy_", out.host, 900, id=ids, dims=[[TOKENS, WIDTH]] * 2,
                         types=["c10::BFloat16"] * 2))  # fmt: skip
    out.events.append(launch(out.host + 5, out.number, name="cudaMemcpyAsync", dur=880, id=ids))
    args = {"bytes": 2 * TOKENS * WIDTH, "External id": ids}
    name = "Memcpy HtoD (Pageable -> Device)"
    out.events.append(copy(out.host + 10, 870, out.number, name=name, **args))
    out.free[7] = out.host + 880
    out.number += 1
    out.host += 920


def _forward(out: _Writer) -> list[tuple[str, int, int]]:
    """Write the forward pass; return of each op its kind, sequence number and start."""
    begin = out.host
    found = []
    for block in range(BLOCKS):
        at = out.host
        for module, kind in (
            (f"LayerNorm_{block}", "norm"), (f"Linear_{2 * block}", "up"),
            (f"GELU_{block}", "gelu"), (f"Linear_{2 * block + 1}", "down"),
        ):  # fmt: skip
            start = out.host
            found.append((kind, out.number, start + 2))
            _layer(out, kind)
            out.events.append(frame(f"nn.Module: {module}", start, out.host - start))
        out.events.append(frame("/home/me/model.py(18): forward", at, out.host - at))
        out.events.append(frame(f"nn.Module: Block_{block}", at, out.host - at))
    out.events.append(frame("nn.Module: Net_0", begin, out.host - begin))
    return found


_FORWARD: Final[dict[str, tuple[str, str, int, list[Any]]]] = {
    "norm": ("aten::native_layer_norm", NORM, 40,
             [[TOKENS, WIDTH], [], [WIDTH], [WIDTH], []]),
    "up": ("aten::addmm", GEMM, 130, [[INNER], [TOKENS, WIDTH], [WIDTH, INNER], [], []]),
    "gelu": ("aten::gelu", POINTWISE.format("GeluCUDAKernelImpl"), 90, [[TOKENS, INNER], []]),
    "down": ("aten::addmm", GEMM, 140, [[WIDTH], [TOKENS, INNER], [INNER, WIDTH], [], []]),
}  # fmt: skip
"""Of each kind of layer: op, kernel, time, shapes."""


def _layer(out: _Writer, kind: str) -> None:
    name, runs, dur, dims = _FORWARD[kind]
    ids = out.number
    types = ["c10::BFloat16" if each else "Scalar" for each in dims]
    out.events.append(op(name, out.host + 2, 26, id=ids, seq=ids, dims=dims, types=types,
                         values=["" if each else "1" for each in dims]))  # fmt: skip
    out.host += 5
    out.allocate()
    out.run(runs, dur, ids)
    out.host += 30


_BACKWARD: Final[dict[str, tuple[str, str, str, int, list[Any]]]] = {
    "norm": ("NativeLayerNormBackward0", "aten::native_layer_norm_backward", NORM, 60,
             [[TOKENS, WIDTH]] * 2 + [[], [TOKENS, 1], [TOKENS, 1], [WIDTH], [WIDTH], []]),
    "up": ("AddmmBackward0", "aten::mm", GEMM_BACKWARD, 270, [[WIDTH, TOKENS], [TOKENS, INNER]]),
    "gelu": ("GeluBackward0", "aten::gelu_backward", POINTWISE.format("GeluBackwardCUDAKernelImpl"),
             120, [[TOKENS, INNER], [TOKENS, INNER], []]),
    "down": ("AddmmBackward0", "aten::mm", GEMM_BACKWARD, 280, [[INNER, TOKENS], [TOKENS, WIDTH]]),
}  # fmt: skip
"""Of each kind of layer: node, op, kernel, time, shapes."""


def _backward(out: _Writer, forward: list[tuple[str, int, int]]) -> None:
    out.host += 40
    for kind, sequence, start in reversed(forward):
        name, inner, runs, dur, dims = _BACKWARD[kind]
        ids = out.number
        out.events.append(node(name, out.host, 40, seq=sequence, id=ids))
        out.events += flow(sequence, start, out.host)
        types = ["c10::BFloat16" if each else "Scalar" for each in dims]
        args = {"id": ids + 100_000, "dims": dims, "types": types}
        out.events.append(op(inner, out.host + 3, 34, tid=ENGINE, **args))
        out.release()
        out.host += 5
        out.run(runs, dur, ids + 100_000, thread=ENGINE)
        out.host += 45
        if kind == "norm":
            _reduce(out)


def _reduce(out: _Writer) -> None:
    """Write the sum over ranks of a block's gradients, on a stream of its own."""
    ids = out.number + 200_000
    out.events.append(op("nccl:all_reduce", out.host, 20, tid=ENGINE, id=ids,
                         dims=[[2 * WIDTH * INNER]], types=["c10::BFloat16"]))  # fmt: skip
    # It sums what this block's backward gives, so it waits for that.
    out.free[COMM_STREAM] = max(out.free.get(COMM_STREAM, 0), out.free[7])
    out.run(REDUCE, 400, ids, stream=COMM_STREAM, thread=ENGINE)
    out.host += 25


def _optimizer(out: _Writer) -> None:
    ids = out.number
    out.events.append(annotation("Optimizer.step#AdamW.step", out.host, 80))
    sizes = [[[WIDTH, INNER], [INNER, WIDTH]] * BLOCKS] * 4
    out.events.append(op("aten::_fused_adamw_", out.host + 5, 60, id=ids, dims=sizes,
                         types=["TensorList"] * 4))  # fmt: skip
    # It needs the gradients of all ranks.
    out.free[7] = max(out.free[7], out.free[COMM_STREAM])
    out.host += 10
    out.run(ADAM, 600, ids)
    out.host += 80
