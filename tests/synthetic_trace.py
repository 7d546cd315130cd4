"""A small Kineto trace of a training loop, made here: every kind of event that we read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST: Final = 4711
MAIN, BACKWARD, STREAM = 4711, 4799, 7
BASE_NS: Final = 1_700_000_000_000_000_000

Event = dict[str, Any]


def synthetic_trace(steps: int = 2) -> dict[str, Any]:
    """Return a trace of a linear layer that is trained for some steps on one GPU."""
    return {
        "schemaVersion": 1,
        "deviceProperties": [
            {
                "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000,
                "computeMajor": 9, "computeMinor": 0, "numSms": 132,
            }
        ],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
        "record_shapes": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": [event for step in range(steps) for event in _step_events(step)],
        "traceName": "trace.json",
    }  # fmt: skip


def _step_events(step: int) -> Iterator[Event]:
    """Yield one iteration; it takes 1000 µs, and its ids begin at 100 times its number."""
    at, ids = 1000.0 * step, 100 * (step + 1)
    frame = "/home/me/train.py(12): step"
    yield _x("user_annotation", f"ProfilerStep#{step}", MAIN, at, 990, {"External id": ids})
    yield _x("python_function", frame, MAIN, at + 1, 900, {"Python id": ids})
    yield _x("python_function", "nn.Module: Linear_0", MAIN, at + 2, 200, {"Python id": ids + 1})
    yield from _forward(at + 10, ids)
    yield from _backward(at + 300, ids)
    yield from _optimizer(at + 600, ids)
    yield {"ph": "M", "name": "process_name", "pid": HOST, "tid": 0, "args": {"name": "python"}}
    power = {"GPU": 250.5, "CPU": 9}
    yield {"ph": "C", "name": "power", "pid": HOST, "ts": _us(at + 5), "args": power}
    yield _x("cuda_profiler_range", "gemm", 0, at + 30, 4, {"inst_executed.sum": 1024.0}, pid=0)
    yield {
        "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": HOST,
        "tid": MAIN, "ts": _us(at + 15),
        "args": {
            "Total Reserved": 2097152, "Total Allocated": 4096, "Bytes": 4096, "Addr": 139_900_000,
            "Device Id": 0, "Device Type": 1, "Ev Idx": ids,
        },
    }  # fmt: skip


def _forward(at: float, ids: int) -> Iterator[Event]:
    shapes = [[1024], [512, 768], [768, 1024], [], []]
    inputs = {
        "Sequence number": ids, "Fwd thread id": 0, "Input Dims": shapes,
        "Input type": ["float", "float", "float", "Scalar", "Scalar"],
        "Input Strides": [[1], [768, 1], [1, 768], [], []],
        "Concrete Inputs": ["", "", "", "1", "1"],
    }  # fmt: skip
    yield _x("cpu_op", "aten::linear", MAIN, at, 180, {"External id": ids + 1} | inputs)
    yield _x("cpu_op", "aten::addmm", MAIN, at + 5, 160, {"External id": ids + 2} | inputs)
    yield from _launched(at + 20, ids + 2, "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128")
    yield _flow("s", ids, MAIN, at + 5)


def _backward(at: float, ids: int) -> Iterator[Event]:
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    number = {"Sequence number": ids, "Fwd thread id": 1}
    yield _x("cpu_op", node, BACKWARD, at, 200, {"External id": ids + 3} | number)
    yield _x("cpu_op", "AddmmBackward0", BACKWARD, at + 1, 190, {"External id": ids + 4} | number)
    inputs = {
        "Input Dims": [[768, 512], [512, 1024]],
        "Input type": ["c10::BFloat16", "c10::BFloat16"],
    }
    yield _x("cpu_op", "aten::mm", BACKWARD, at + 10, 150, {"External id": ids + 5} | inputs)
    yield from _launched(at + 20, ids + 5, "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_nn")
    yield _flow("f", ids, BACKWARD, at + 1)


def _optimizer(at: float, ids: int) -> Iterator[Event]:
    yield _x("user_annotation", "Optimizer.step#SGD.step", MAIN, at, 300, {"External id": ids + 6})
    sizes = {"Input Dims": [[[1024], [768, 1024]], []], "Input type": ["TensorList", "Scalar"]}
    yield _x("cpu_op", "aten::_foreach_add_", MAIN, at + 5, 90, {"External id": ids + 7} | sizes)
    yield from _launched(at + 20, ids + 7, "void at::native::multi_tensor_apply_kernel<4>(int)")
    copy = {"device": 0, "stream": STREAM, "correlation": ids + 8, "bytes": 4096}
    yield _x("cuda_runtime", "cudaMemcpyAsync", MAIN, at + 120, 9, {"correlation": ids + 8})
    pageable = "Memcpy HtoD (Pageable -> Device)"
    yield _x("gpu_memcpy", pageable, STREAM, at + 130, 4.5, copy, pid=0)
    fill = {"device": 0, "stream": STREAM, "correlation": ids + 9, "bytes": 64}
    yield _x("cuda_runtime", "cudaMemsetAsync", MAIN, at + 140, 3, {"correlation": ids + 9})
    yield _x("gpu_memset", "Memset (Device)", STREAM, at + 150, 1.024, fill, pid=0)


def _launched(at: float, number: int, kernel: str) -> Iterator[Event]:
    """Yield a launch and its kernel, whose External id is `number`."""
    ids = {"External id": number, "correlation": number}
    yield _x("cuda_runtime", "cudaLaunchKernel", MAIN, at, 6, ids | {"cbid": 211})
    args = ids | {
        "device": 0, "context": 1, "stream": STREAM, "queued": 0, "registers per thread": 128,
        "shared memory": 49152, "blocks per SM": 0.969697, "warps per SM": 7.757576,
        "grid": [8, 16, 1], "block": [256, 1, 1], "est. achieved occupancy %": 12,
    }  # fmt: skip
    yield _x("kernel", kernel, STREAM, at + 10, 33.125, args, pid=0)
    for phase, tid, time in (("s", MAIN, at), ("f", STREAM, at + 10)):
        yield _flow(phase, number, tid, time, category="ac2g")


def _x(  # noqa: PLR0913 -- the fields of an event
    category: str, name: str, tid: int, at: float, dur: float, args: Event, *, pid: int = HOST
) -> Event:  # fmt: skip
    return {
        "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": _us(at),
        "dur": dur, "args": args,
    }  # fmt: skip


def _flow(phase: str, number: int, tid: int, at: float, category: str = "fwdbwd") -> Event:
    return {
        "ph": phase, "id": number, "pid": HOST, "tid": tid, "ts": _us(at), "cat": category,
        "name": category, "bp": "e",
    }  # fmt: skip


def _us(at: float) -> float:
    return 4_400_000_000.0 + at
