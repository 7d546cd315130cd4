"""What recordings say of a model: every configuration held against each, and what is left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.api import run_serving
from pyprof2.api.run import load
from pyprof2.errors import UsageError
from tests.kineto_events import trace
from tests.serving_events import gpt_oss, gpt_oss_layers, step_events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

NAME = "execute_context_1(888_788544)_generation_0(0)"
SUMS = "execute_888_context_1(sq888sk888sqsq788544sqsk788544)_generation_0(sq0sk0sqsq0sqsk0)"


def _config(shared: Path, folder: Path, **changes: Any) -> Path:
    given = json.loads((shared / "reference/serving/openai--gpt-oss-20b_config.json").read_text())
    path = folder / "config.json"
    path.write_text(json.dumps(gpt_oss(given, layers=36, experts=128) | changes))
    return path


def _recorded(folder: Path, name: str = NAME) -> Run:
    """Return a recording with the shapes of gpt-oss-120b on one of eight ranks."""
    path = trace(
        folder / "server.json",
        step_events(name, gpt_oss_layers(888, 36, 8, 128)),
        distributedInfo={"backend": "nccl", "rank": 0, "world_size": 8},
        deviceProperties=[{"id": 0, "name": "NVIDIA B200"}],
    )
    return load(path)


def test_experts_that_no_shape_says_are_known_by_the_configuration(
    shared: Path, tmp_path: Path
) -> None:
    """Of a layer 22.1 GFLOP, and at most 212 MB of weights: an interval, whatever the routing."""
    run = _recorded(tmp_path)

    without = run_serving.serving_kinds(run.tables).set_index("kind")
    found = run_serving.serving_kinds(run.tables, _config(shared, tmp_path)).set_index("kind")

    experts = found.loc["experts"]
    assert without["cost_from"].isna()["experts"]
    assert experts["flops_least"] / 36e9 == pytest.approx(22.1, abs=0.02)
    assert experts["bytes_most"] / 36e6 == pytest.approx(211.5, abs=0.1)
    assert experts["bytes_least"] == pytest.approx(experts["bytes_most"] * 4 / 128)
    # The kernels multiply weights of 4 bits with values of 8.
    (step,) = run_serving.serving_costs(run.tables, _config(shared, tmp_path)).to_dict("records")
    others = step["flops_least"] - experts["flops_least"]
    assert step["math_ns_least"] == pytest.approx(
        experts["flops_least"] / 4.5e6 + others / 2.25e6, rel=1e-6
    )
    # Not guessed: the context of the request is not recorded.
    assert found.loc["attention", ["flops_least", "bytes_least"]].isna().all()
    costed, before = (
        (rows["costed_pct"] * rows["device_ns"]).sum() / rows["device_ns"].sum()
        for rows in (found, without)
    )
    assert before < 45
    assert costed > 95


def test_with_the_context_of_the_request_attention_is_known_too(
    shared: Path, tmp_path: Path
) -> None:
    run = _recorded(tmp_path, SUMS)

    found = run_serving.serving_kinds(run.tables, _config(shared, tmp_path)).set_index("kind")

    assert found["costed_pct"].min() == 100
    pairs = 888 * 889 // 2
    windowed = 128 * 888 - 128 * 127 // 2
    own = found.loc["attention"]
    assert own["flops_least"] == 18 * 4 * 8 * 64 * (pairs + windowed)
    assert own["flops_most"] >= own["flops_least"]


def test_how_many_ranks_share_a_model_follows_from_heads(shared: Path, tmp_path: Path) -> None:
    """They are divided among ranks, as the vocabulary is, which must agree."""
    run, config = _recorded(tmp_path), _config(shared, tmp_path)

    assert run_serving.serving_costs(run.tables, config).attrs["shards"] == 8
    with pytest.raises(UsageError, match="heads: recorded 8, configuration 16"):
        run_serving.serving_costs(run.tables, config, 4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_hidden_layers": 35}, "layer_types"),
        ({"num_hidden_layers": 35, "layer_types": None}, "layers: recorded 36, configuration 35"),
        ({"vocab_size": 201088 + 2048}, "vocabulary: recorded 25136, configuration 203136"),
        ({"hidden_size": 2816}, "hidden size: recorded 2880, configuration 2816"),
        ({"num_local_experts": 64}, "experts: recorded 128, configuration 64"),
        ({"num_attention_heads": 72}, "heads: recorded 8, configuration 9"),
        ({"num_key_value_heads": 16}, "heads of keys: recorded 1, configuration 2"),
        ({"head_dim": 128}, "size of a head: recorded 64, configuration 128"),
    ],
)
def test_each_fact_that_differs_refuses_a_configuration(
    shared: Path, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    run = _recorded(tmp_path)

    with pytest.raises(UsageError, match=words):
        run_serving.serving_costs(run.tables, _config(shared, tmp_path, **change), 8)


def test_known_models_that_are_not_contradicted_are_named_and_none_is_chosen(
    tmp_path: Path,
) -> None:
    recorded, names = run_serving.serving_models(_recorded(tmp_path).tables)

    assert names == ["gpt-oss-120b"]
    assert recorded["layers"] == [36]
    assert recorded["bits of the cache"] == [16]


# What they are is known from outside.
SERVED = {"tl_sglang_dec": "Qwen3-8B", "tl_vllm_dec": "gpt-oss-20b"}


@pytest.mark.parametrize("name", SERVED)
def test_the_model_that_was_served_is_among_those_that_are_left(
    name: str, shared_trace: Callable[[str], Path]
) -> None:
    """Of replays without a capture little is known, but that is no reason to be wrong."""
    recorded, names = run_serving.serving_models(
        load(shared_trace(f"kineto/{name}.json.gz")).tables
    )

    assert any(SERVED[name] in each for each in names)
    assert len(names) <= 3
    assert recorded["layers"] == [{"tl_sglang_dec": 36, "tl_vllm_dec": 24}[name]]
