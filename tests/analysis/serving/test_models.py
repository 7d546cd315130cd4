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

NOTHING: Final = RequestSums(0, 0, 0, 0, 0)
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
        own = model.layers * sums.sq * 2 * model.heads * (model.key_size + model.value_size)
        assert model.costs(sums, NOTHING)["kv_write"].bytes.most == model.layers * sums.sq * 2 * row
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
    one, three, many = (
        model.costs(NOTHING, RequestSums(tokens, tokens))["experts"].bytes for tokens in (1, 3, 100)
    )
    assert one.least == one.most == many.least == 3 * 2 * expert
    assert three.most - three.least == 3 * 4 * expert
    assert many.most - many.least == 3 * 6 * expert


def test_the_experts_that_are_read_if_routing_is_uniform_are_those_of_a_simulation(
    tmp_path: Path,
) -> None:
    model = _read(tmp_path, GPT_OSS)
    random = np.random.default_rng(5)

    for tokens in (1, 3, 10):
        touched = [
            len({e for _ in range(tokens) for e in random.choice(8, 2, replace=False).tolist()})
            for _ in range(2000)
        ]
        assert model.experts_touched(tokens) == pytest.approx(np.mean(touched), rel=0.02)


def test_products_count_two_for_each_weight_of_a_token(tmp_path: Path) -> None:
    model = _read(tmp_path, DEEPSEEK)

    attention = 32 * 20 + 20 * 4 * 12 + 32 * 16 + 12 * 4 * 16 + 4 * 8 * 32
    dense, expert = 3 * 32 * 48, 3 * 32 * 16
    costs = model.costs(RequestSums(2, 7), NOTHING)
    flops = {kind: cost.flops.least for kind, cost in costs.items() if cost.flops is not None}
    assert flops["qkv"] + flops["o"] == 2 * 7 * 3 * attention
    assert flops["gate_up"] + flops["down"] == 2 * 7 * dense
    assert flops["experts"] == 2 * 7 * 2 * (2 * expert + expert)
    assert flops["router"] == 2 * 7 * 2 * 32 * 8
    # A row of logits for each request.
    assert flops["lm_head"] == 2 * 2 * 100 * 32
    assert costs["attention"].flops is None


def test_ranks_that_share_a_model_have_parts_of_it(tmp_path: Path) -> None:
    whole, half = (_read(tmp_path, LLAMA, shards) for shards in (1, 2))

    assert (half.heads, half.kv_heads, half.mlp_size) == (2, 1, whole.mlp_size // 2)
    assert half.params * 2 == whole.params


AWQ: Final = {"quant_method": "awq", "bits": 4, "group_size": 128}
COMPRESSED: Final = {
    "quant_method": "compressed-tensors", "ignore": ["lm_head", "re:.*self_attn.*"],
    "config_groups": {"group_0": {
        "targets": ["Linear"], "input_activations": None,
        "weights": {"num_bits": 4, "type": "int", "group_size": 32},
    }},
}  # fmt: skip
COMPRESSED_FP8: Final = COMPRESSED | {
    "config_groups": {"group_0": {
        "targets": ["Linear"], "input_activations": {"num_bits": 8},
        "weights": {"num_bits": 8, "type": "float", "block_structure": [128, 128]},
    }},
    "kv_cache_scheme": {"num_bits": 8, "type": "float"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("how", "bits", "kind", "attention_bits"),
    [
        ({"quant_method": "fp8"}, 8, "f8", 8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 16384, "f8", None),
        (AWQ, 4 + 20 / 128, "bf16", 4 + 20 / 128),
        (AWQ | {"modules_to_not_convert": ["self_attn"]}, 4 + 20 / 128, "bf16", 16),
        # One layer of three is not converted.
        (AWQ | {"modules_to_not_convert": ["model.layers.1"]}, None, "bf16", 8.104166666),
        ({"quant_algo": "NVFP4", "exclude_modules": ["*self_attn*"]}, 4.5, "f4", 16),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, 8, "f8", 8),
        (COMPRESSED, 4.5, "bf16", 16),
        (COMPRESSED_FP8, 8 + 32 / 16384, "f8", 16),
        ({"quant_method": "mxfp4"}, 4.25, "bf16", 4.25),
    ],
)
def test_bits_of_weights_have_their_scales_and_what_is_not_converted(
    tmp_path: Path, how: Any, bits: float | None, kind: str, attention_bits: float | None
) -> None:
    model = _read(tmp_path, LLAMA | {"quantization_config": how})

    if bits is not None:
        assert model.weights["gate_up"].bits == model.weights["down"].bits == bits
        assert model.type_of("gate_up") == kind
    if attention_bits is not None:
        assert model.weights["qkv"].bits == pytest.approx(attention_bits)
    assert model.weights["lm_head"].bits == 16
    has_cache = {"kv_cache_quant_algo", "kv_cache_scheme"} & how.keys()
    assert model.cache_bits == (8 if has_cache else None)


def test_the_file_of_quantisation_beside_a_configuration_counts(tmp_path: Path) -> None:
    content = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(content))

    assert _read(tmp_path, LLAMA).weights["qkv"].bits == 8


def test_the_text_part_of_a_model_that_sees_is_what_is_read(tmp_path: Path) -> None:
    text = {name: LLAMA[name] for name in LLAMA if name != "architectures"}
    config = {"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": text}

    assert _read(tmp_path, config).params == _read(tmp_path, LLAMA).params


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
        ({"quantization_config": AWQ | {"group_size": 0}}, "group_size 0 is no size"),
        ({"quantization_config": COMPRESSED | {"config_groups": {}}}, "not one for all"),
        ({"quantization_config": COMPRESSED | {"ignore": ["re:("]}}, "is no expression"),
        ({"quantization_config": 7}, "7 is not known"),
        ({"attn_type_list": [1, 0]}, "attn_type_list"),
        ({"n_routed_experts": 8, "first_k_dense_replace": 9}, "9 of 3 layers"),
        ({"layer_types": 3, "sliding_window": 4}, "not of the form"),
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
