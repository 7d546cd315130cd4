"""Kinds of layer: by op, by module, by the order of products; and of real recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pyprof2.analysis.serving.costs import INPUT, served_rank
from pyprof2.analysis.serving.kinds import KINDS, kinds_of
from pyprof2.api import run_serving
from pyprof2.api.run import load
from pyprof2.pipeline.parsing import parse
from pyprof2.tables import TEXT
from tests.test_real_graphs import PAIRS

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

DENSE: Final = ("norm", "mm", "attention", "mm", "norm", "mm", "silu", "mm")
MOE: Final = ("norm", "mm", "attention", "mm", "norm", "mm", "topk_softmax", "moe", "moe")
OPS: Final = {
    "norm": ("_C::rms_norm", "norm"), "mm": ("aten::mm", "matmul"),
    "attention": ("vllm::unified_attention_with_output", "attention"),
    "silu": ("_C::silu_and_mul", "elementwise"), "moe": ("vllm::moe_forward", "matmul"),
    "topk_softmax": ("_moe_C::topk_softmax", "softmax"), "split": ("aten::mm", "matmul"),
    "comm": ("c10d::allreduce_", "comm"), "argmax": ("aten::argmax", "reduce"),
    "cache": ("_C_cache_ops::reshape_and_cache_flash", "copy"), "copy": ("aten::copy_", "copy"),
    "rope": ("_C::rotary_embedding", "elementwise"), "odd": (None, None),
}  # fmt: skip
DENSE_KINDS: Final = ("norm", "qkv", "attention", "o", "norm", "gate_up", "activation", "down")


def _kinds(names: Any, steps: Any = None, layers: Any = None, **options: Any) -> list[str]:
    kernels = pa.table(
        {
            "device": pa.array([0] * len(names), pa.int64()),
            "start_ns": pa.array(range(len(names)), pa.int64()),
            "category": pa.array([OPS[name][1] for name in names], TEXT),
            "kernel_short": pa.array(
                ["splitKreduce" if name == "split" else "k" for name in names], TEXT
            ),
            "op": pa.array([OPS[name][0] for name in names], TEXT),
            "layer": pa.array(layers or [None] * len(names), TEXT),
        }
    )
    step = np.array(steps if steps is not None else [0] * len(names))
    return [KINDS[code] for code in kinds_of(kernels, step, **options).tolist()]


def test_products_are_told_apart_by_their_order() -> None:
    found = _kinds([*DENSE * 3, "mm", "argmax"])

    assert found == [*DENSE_KINDS * 3, "lm_head", "sampling"]


def test_layers_with_experts_have_a_router() -> None:
    found = _kinds([*MOE * 2, "norm", "mm"])

    own = ["norm", "qkv", "attention", "o", "norm", "router", "router", "experts", "experts"]
    assert found == [*own * 2, "norm", "lm_head"]


def test_where_the_number_of_products_differs_none_is_told_apart() -> None:
    """A product more between attention and activation: both there, and only there, are unknown."""
    names = [*DENSE, *DENSE, "mm"]
    names.insert(3, "mm")

    found = _kinds(names)

    assert [found[at] for at in (3, 4, 6)] == ["linear"] * 3
    assert found[1] == "qkv"
    assert found[9:] == [*DENSE_KINDS, "lm_head"]


def test_the_sum_of_parts_of_a_product_is_of_its_kind() -> None:
    names = [*DENSE, "mm"]
    names.insert(4, "split")

    assert _kinds(names)[3:5] == ["o", "o"]


def test_a_step_has_an_order_of_its_own_and_work_outside_has_none() -> None:
    names = [*DENSE, "mm", *DENSE, "mm", "mm"]

    found = _kinds(names, [0] * 9 + [1] * 9 + [-1])

    assert found == [*DENSE_KINDS, "lm_head"] * 2 + ["linear"]
    assert _kinds(names)[8:10] == ["linear", "norm"]


def test_modules_say_what_order_does_not() -> None:
    paths = {
        "model.layers.0.self_attn.q_proj": "qkv", "layers.1.self_attn.v_proj": "qkv",
        "Model_0.DecoderLayer_0.Qwen3Attention_0.QKVParallelLinear_0": "qkv",
        "Model_0.DecoderLayer_0.Qwen3Attention_0.RowParallelLinear_0": "o",
        "Model_0.DecoderLayer_3.Qwen2MLP_3.RowParallelLinear_7": "down",
        "Model_0.DecoderLayer_3.Qwen2MLP_3.MergedColumnParallelLinear_7": "gate_up",
        "model.layers.0.mlp.up_proj": "gate_up", "model.layers.0.mlp.gate": "router",
        "model.layers.0.mlp.experts.3.down_proj": "experts", "lm_head": "lm_head",
        "model.layers.0.mlp.shared_experts.down_proj": "experts", "LogitsProcessor_0": "lm_head",
        "model.layers.0": "linear", "model.layers.0.self_attn": "linear",
    }  # fmt: skip

    found = _kinds(["mm"] * len(paths), [-1] * len(paths), list(paths))

    assert found == list(paths.values())


def test_ops_say_their_kind_and_what_has_none_is_other() -> None:
    found = _kinds(["comm", "cache", "rope", "copy", "argmax", "topk_softmax", "odd"])

    assert found == [
        "communication", "kv_write", "rope", "copy", "sampling", "router", "other",
    ]  # fmt: skip


@pytest.fixture(scope="module", params=["sglang", "vllm"])
def pair(
    request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Run]:
    capture, replay = PAIRS[request.param]
    store = parse(
        shared / "traces" / "kineto" / f"{replay}.json.gz",
        tmp_path_factory.mktemp(request.param) / "with.pyprof2",
        captures=[shared / "traces" / "graphs" / f"{capture}.json.gz"],
    )
    return request.param, load(store, device="MI300X")


def test_order_says_of_replays_what_the_capture_does(pair: tuple[str, Run]) -> None:
    """Without the capture neither ops nor modules are known: names and order alone."""
    name, run = pair
    (rank,) = run.tables.ranks
    tables = rank.several(INPUT)
    own = served_rank(tables, 0)
    kernels = tables["kernels"]
    count = kernels.num_rows
    nothing = pa.array([None] * count, TEXT)
    blind = kernels.drop_columns(["op", "layer"])
    blind = blind.append_column("op", nothing).append_column("layer", nothing)

    found = kinds_of(blind, own.work.step[:count])

    is_replay = np.array(kernels["category"].to_pylist()) != "memcpy"
    differ = np.flatnonzero((found != own.kind[:count]) & is_replay)
    weights = {"qkv", "o", "gate_up", "down", "lm_head", "router", "experts", "attention"}
    assert not {KINDS[code] for code in own.kind[differ].tolist()} & weights, name


# By another program, which reads the capture too, in us.
PUBLISHED: Final = {
    "sglang": {"gate_up": 2417.7, "down": 1461.9, "qkv": 903.5, "o": 602.3, "lm_head": 396.8},
    "vllm": {"lm_head": 276.7},
}  # fmt: skip


def test_times_by_kind_are_those_that_another_program_finds(pair: tuple[str, Run]) -> None:
    name, run = pair

    found = run_serving.serving_kinds(run.tables)

    times = found.set_index("kind")["device_ns"] / 1e3
    for kind, microseconds in PUBLISHED[name].items():
        assert times[kind] == pytest.approx(microseconds, rel=1e-3)
    assert found["device_ns"].sum() == run.serving_steps()["device_ns"].sum()
    assert found["share_pct"].sum() == pytest.approx(100)


def test_work_by_kind_is_that_which_another_program_finds(
    pair: tuple[str, Run], shared: Path
) -> None:
    """GFLOP of products and of full attention, and bytes of the latter, within 0.2 %."""
    name, run = pair
    folder = {"sglang": "sglang_decode", "vllm": "vllm_decode_full"}[name]
    model = {"sglang": "Qwen--Qwen3-8B", "vllm": "openai--gpt-oss-20b"}[name]
    files = [
        pd.read_csv(shared / "reference/serving" / folder / f"{table}.csv")
        for table in ("GEMM", "InferenceAttention_fwd")
    ]
    products, attention = files
    products = products[products["name"].isin(["aten::mm", "aten::addmm"])]

    found = run_serving.serving_kinds(
        run.tables, shared / f"reference/serving/{model}_config.json", 1
    )

    rows = found.set_index("kind")
    kinds = [
        kind for kind in ("qkv", "o", "gate_up", "down", "router", "lm_head") if kind in rows.index
    ]
    total = (products["GFLOPS_first"] * products["name_count"]).sum()
    # They count the addition of a bias, which is one in 2 K.
    assert rows.loc[kinds, "flops_least"].sum() / 1e9 == pytest.approx(total, rel=2e-3)
    published = attention[attention["name"].str.contains("attention")].iloc[0]
    layers, own = int(published["name_count"]), rows.loc["attention"].copy()
    if name == "vllm":
        # 12 other layers see at most 128 tokens of a request, at least one; 64 heads of 64 read 8.
        for end, tokens in (("least", 32), ("most", 32 * 128)):
            own[f"flops_{end}"] -= 12 * 4 * 64 * 64 * tokens
            own[f"bytes_{end}"] -= 12 * (2 * 2 * 8 * 64 * tokens + 2 * 2 * 64 * 64 * 32)
    for end in ("least", "most"):
        flops, moved = own[f"flops_{end}"] / layers, own[f"bytes_{end}"] / layers
        assert flops / 1e9 == pytest.approx(published["GFLOPS_first"], rel=2e-3)
        assert moved / 2**20 == pytest.approx(published["Data Moved (MB)_first"], rel=2e-3)
    # No kind reads faster than the memory can.
    assert (found["gbps_most"].dropna() <= 5300).all()
