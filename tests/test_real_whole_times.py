"""Recordings of whole microseconds, as Kineto wrote them for years, are linked as those of ns."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from pyprof2.api.run import Run, load
from tests.conftest import of_each_kind
from tests.kineto_events import rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINKS: Final = ("op", "layer", "direction", "recompute", "step", "source", "link")
LARGE: Final = (
    "hta_ns_v100", "tl_owlv2_h100", "tl_qwen_mi300", "tl_resnet_ckpt_mi300", "mtia_inference"
)  # fmt: skip
SMALL: Final = (
    "hta_mi250_toy", "hta_triton", "tl_bertsmall_h100", "tl_compile_triton", "tl_elem_01",
    "tl_moe2_b300", "tl_norm_mi300", "tl_nsfwvit_h100", "tl_sdpa_01", "tl_sdpa_03",
    "tl_sglang_dec", "tl_vllm_dec", "part_a100_b2", "part_a100_b16", "part_a100_b64",
    "part_a100_b256",
)  # fmt: skip

pytestmark = pytest.mark.slow


def cut_off(path: Path, folder: Path, *, by_duration: bool) -> Path:
    """Write a trace with whole µs: starts, and ends or durations, without the digits after it."""
    with gzip.open(path) as file:
        whole = json.load(file, parse_float=Decimal)
    for event in whole["traceEvents"]:
        if "ts" not in event:
            continue
        start = Decimal(event["ts"])
        event["ts"] = int(start)
        if "dur" in event:
            dur = Decimal(event["dur"])
            event["dur"] = int(dur) if by_duration else int(start + dur) - int(start)
    found = folder / "trace.json"
    found.write_text(json.dumps(whole, default=float))
    return found


def links(run: Run) -> list[tuple[Any, ...]]:
    """How each kernel and copy is linked, and in which µs its op begins, by correlation id."""
    table = pa.concat_tables([run.table(name) for name in ("kernels", "copies")])
    began = rows(run.table("ops"), "start_ns")
    ops = [
        tuple(None if at is None else began[at] // 1000 for at in both)
        for both in rows(table, "op_id", "forward_op_id")
    ]
    keys = rows(table, "correlation_id", "stream", "kernel")
    found = zip(keys, ops, rows(table, *LINKS), strict=True)
    return sorted(found, key=repr)


@pytest.mark.parametrize("by_duration", [False, True], ids=["ends", "durations"])
@pytest.mark.parametrize(
    "name",
    [*of_each_kind(SMALL), *(pytest.param(name, marks=pytest.mark.minutes) for name in LARGE)],
)
def test_what_encloses_is_found_without_the_digits(
    name: str, *, by_duration: bool, shared_trace: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = "more/kineto" if name.startswith(("part_", "mtia_")) else "kineto"
    path = shared_trace(f"{folder}/{name}.json.gz")

    found = links(load(cut_off(path, tmp_path, by_duration=by_duration)))

    assert found == links(load(path))
