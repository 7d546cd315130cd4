"""Costs of models against loops over tokens, and against what their makers state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from pyprof2.analysis.serving.batches import RequestSums
from pyprof2.analysis.serving.models import read_model
from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

LLAMA: Final = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 100,
}  # fmt: skip
GPT_OSS: Final = LLAMA | {
    "architectures": ["GptOssForCausalLM"], "head_dim": 16, "num_local_experts": 8,
    "num_experts_per_tok": 2, "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
    },
}  # fmt: skip
DEEPSEEK: Final = LLAMA | {
    "architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 12, "q_lora_rank": 20,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip

# Parameters in billions, the embedding included, as the cards of the models state them.
CARDS: Final = {
    "Qwen--Qwen3-8B": 8.19, "deepseek-ai--DeepSeek-R1": 671.03,
    "meta-llama--Meta-Llama-3.1-8B": 8.03, "openai--gpt-oss-20b": 20.91,
}  # fmt: skip


def _read(folder: Path, config: Any, shards: int = 1) -> Any:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return read_model(path, shards)


@pytest.mark.parametrize("name", CARDS)
def test_parameters_are_those_of_the_cards(name: str, shared: Path) -> None:
    model = read_model(shared / f"reference/serving/{name}_config.json", 1)

    assert (model.params + model.vocab * model.hidden) / 1e9 == pytest.approx(CARDS[name], rel=4e-4)


@pytest.mark.parametrize("config", [LLAMA, GPT_OSS, DEEPSEEK], ids=["gqa", "windows", "latent"])
def test_costs_are_those_of_loops_over_tokens(tmp_path: Path, config: dict[str, Any]) -> None:
    model = _read(tmp_path, config)
    random = np.random.default_rng(3)
    for _ in range(300):
        requests = [
            (new := int(random.integers(1, 30)), new + int(random.integers(0, 60)))
            for _ in range(int(random.integers(1, 6)))
        ]
        flops = keys_read = 0
        for window in model.windows:
            for new, keys in requests:
                first = keys - new
                for token in range(new):
                    seen = first + token + 1
                    seen = seen if window is None else min(seen, window)
                    flops += 2 * model.heads * (model.key_size + model.value_size) * seen
                # What the first new token sees is the farthest back that is read.
                keys_read += keys if window is None else min(keys, new + window - 1)
        sums = RequestSums(
            len(requests), sum(new for new, _ in requests), sum(keys for _, keys in requests),
            sum(new * new for new, _ in requests), sum(new * keys for new, keys in requests),
        )  # fmt: skip

        found = model.attention_flops(sums, absorbed=False)
        moved = model.attention_bytes(sums)

        row = sum(model.latent) if model.latent else model.kv_heads * 2 * model.key_size
        own = (
            model.layers
            * sums.sq
            * (2 * model.heads * (model.key_size + model.value_size) + 2 * row)
        )
        assert found.least <= flops <= found.most
        assert moved.least <= 2 * row * keys_read + own <= moved.most
        if not any(model.windows):
            assert found.least == found.most == flops
            assert moved.least == moved.most


def test_a_decode_sees_no_more_keys_than_its_window(tmp_path: Path) -> None:
    model = _read(tmp_path, GPT_OSS)
    sums = RequestSums(2, 2, 200, 2, 200)

    each = 2 * 4 * 2 * 16
    # Two layers of windows of 5, one that sees all 200 keys.
    assert model.attention_flops(sums, absorbed=True).most == each * (200 + 2 * 2 * 5)


def test_experts_that_are_read_are_an_interval(tmp_path: Path) -> None:
    model = _read(tmp_path, GPT_OSS)

    expert = 3 * 32 * 48 * 4.25 / 8
    one, three, many = (model.weight_bytes(tokens) for tokens in (1, 3, 100))
    assert one.least == one.most == many.least
    assert three.most - three.least == 3 * 4 * expert
    assert many.most - many.least == 3 * 6 * expert


def test_products_count_two_for_each_weight_of_a_token(tmp_path: Path) -> None:
    model = _read(tmp_path, DEEPSEEK)

    attention = 32 * 20 + 20 * 4 * 12 + 32 * 16 + 12 * 4 * 16 + 4 * 8 * 32
    dense, expert = 3 * 32 * 48, 3 * 32 * 16
    body = 3 * attention + dense + 2 * (2 * expert + expert + 32 * 8)
    assert model.linear_flops(7, 2) == 2 * (7 * body + 2 * 100 * 32)


def test_ranks_that_share_a_model_have_parts_of_it(tmp_path: Path) -> None:
    whole, half = (_read(tmp_path, LLAMA, shards) for shards in (1, 2))

    assert (half.heads, half.kv_heads, half.mlp_params) == (2, 1, whole.mlp_params // 2)
    assert half.params * 2 == whole.params


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architectures": ["NobodysForCausalLM"]}, "not checked"),
        ({"architectures": []}, "none named"),
        ({"attention_chunk_size": 8192}, "attention_chunk_size"),
        ({"linear_num_value_heads": 4}, "linear_num_value_heads"),
        ({"moe_layer_freq": 2}, "moe_layer_freq"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ({"sliding_window": 4, "use_sliding_window": True}, "use_sliding_window"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "32"}, "'32' is no size"),
        ({"hidden_size": -1}, "-1 is no size"),
        ({"quantization_config": {"quant_method": "nobodys"}}, "'nobodys' is not known"),
        ({"sliding_window": 4, "layer_types": ["chunked"]}, "layer_types"),
        ({"num_attention_heads": 3}, "cannot be divided among 2 ranks"),
    ],
)
def test_a_configuration_that_is_not_understood_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        _read(tmp_path, LLAMA | change, 2)


def test_what_is_no_configuration_is_refused(tmp_path: Path) -> None:
    for text, words in (("[", "no JSON"), ("[]", "no object")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UsageError, match=words):
            read_model(tmp_path / "config.json", 1)
    with pytest.raises(UsageError, match="No such file"):
        read_model(tmp_path / "nothing.json", 1)
