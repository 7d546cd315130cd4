"""The cost of a step of a language model by its configuration: FLOPs, and bytes that it reads.

The configuration is Hugging Face's `config.json`. Only architectures whose layers are as described
here are taken, and keys that would change them are refused: a model read wrong is worse than none.
Formulas are those of the dense decoder (Vaswani et al., "Attention Is All You Need", 2017; gated
MLP of Shazeer, 2020), grouped queries (Ainslie et al., 2023), latent attention (DeepSeek-V2, 2024).
"""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyprof2.analysis.serving.batches import RequestSums

ARCHITECTURES: Final = (
    "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM", "MixtralForCausalLM", "GptOssForCausalLM", "DeepseekV3ForCausalLM",
)  # fmt: skip
"""Those whose numbers were checked against those that their authors state."""

_REFUSED: Final = (
    "block_configs", "interleave_moe_layer_step", "hybrid_layer_pattern",
    "num_global_key_value_heads", "attention_chunk_size", "attn_output_gate", "index_topk",
    "hybrid_override_pattern",
)  # fmt: skip
_ONE_IN_EACH_LAYER: Final = ("moe_layer_freq", "decoder_sparse_step")
_REFUSED_BEGINNINGS: Final = ("linear_", "mamba_")
_BITS: Final = {"mxfp4": 4.25, "nvfp4": 4.5}
"""Bits of a weight, its share of the scales included: 8 bits for 32 or for 16 weights."""
_LARGEST_BYTES: Final = 1 << 24


class Between(NamedTuple):
    """A number that is known to lie between two others."""

    least: float
    most: float

    def __add__(self, other: object) -> Between:
        """Add up, end by end."""
        if not isinstance(other, Between):
            return NotImplemented
        return Between(self.least + other.least, self.most + other.most)


def _exactly(value: float) -> Between:
    return Between(value, value)


@dataclass(frozen=True)
class LanguageModel:
    """A language model, as it is divided among the ranks that share its tensors.

    Attributes:
        architecture: its name.
        layers: how many there are.
        hidden, vocab: sizes.
        heads, kv_heads: of queries, and of keys and values, on one rank.
        key_size, value_size: of a head.
        latent: of latent attention the sizes of a token's row of the cache, and of its rotary part;
            None: keys and values are kept by head.
        windows: of each layer how many keys a token sees at most; None: all before it.
        attention_params: weights of the projections of a layer's attention on one rank.
        mlp_params: weights of a dense layer's MLP on one rank.
        moe_layers: how many layers have experts.
        experts, top_k: how many there are in a layer, and how many a token goes to.
        expert_params: weights of an expert on one rank.
        shared_params: weights of a layer with experts that each token goes through: shared experts.
        router_params: weights of its router, which no rank divides.
        head_params: weights of the product with the vocabulary on one rank.
        attention_bits, linear_bits, expert_bits: bits of their weights, scales included.
        dense_bits: those of weights that are not quantised, and of keys and values.
    """

    architecture: str
    layers: int
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    latent: tuple[int, int] | None
    windows: tuple[int | None, ...]
    attention_params: int
    mlp_params: int
    moe_layers: int
    experts: int
    top_k: int
    expert_params: int
    shared_params: int
    router_params: int
    head_params: int
    attention_bits: float
    linear_bits: float
    expert_bits: float
    dense_bits: float = 16

    @property
    def params(self) -> int:
        """Weights on one rank, without the embedding, norms and biases."""
        dense = (self.layers - self.moe_layers) * self.mlp_params
        own = self.experts * self.expert_params + self.shared_params + self.router_params
        return (
            self.layers * self.attention_params + dense + self.moe_layers * own + self.head_params
        )

    def linear_flops(self, tokens: int, outputs: int) -> int:
        """Return the FLOPs of products with weights: each weight of a token is 2."""
        dense = (self.layers - self.moe_layers) * self.mlp_params
        routed = self.top_k * self.expert_params + self.shared_params + self.router_params
        body = self.layers * self.attention_params + dense + self.moe_layers * routed
        return 2 * (tokens * body + outputs * self.head_params)

    def weight_bytes(self, tokens: int) -> Between:
        """Return the bytes of weights that are read: of each layer those experts that are used."""
        dense = (self.layers - self.moe_layers) * self.mlp_params * self.linear_bits
        fixed = self.layers * self.attention_params * self.attention_bits + dense
        fixed += self.moe_layers * self.shared_params * self.linear_bits
        kept = self.moe_layers * self.router_params + self.head_params
        fixed += kept * self.dense_bits
        used = min(self.top_k, self.experts), min(self.experts, self.top_k * tokens)
        each = self.moe_layers * self.expert_params * self.expert_bits
        return Between(*((fixed + count * each) / 8 for count in used))

    def attention_flops(self, sums: RequestSums, *, absorbed: bool) -> Between | None:
        """Return the FLOPs of causal attention; None: the sums are not known.

        Args:
            sums: of the requests.
            absorbed: whether latent attention multiplies with rows of the cache as they are.
        """
        if None in (sums.req, sums.sq, sums.sqsq, sums.sqsk):
            return None
        req, sq, sqsq, sqsk = (int(each or 0) for each in (sums.req, sums.sq, sums.sqsq, sums.sqsk))
        pairs = sqsk - (sqsq - sq) // 2
        size = self.key_size + self.value_size
        if self.latent is not None and absorbed:
            size = 2 * self.latent[0] + self.latent[1]
        total = Between(0, 0)
        for window in self.windows:
            seen = _exactly(pairs)
            if window is not None:
                least = max(sq, window * sq - req * window * (window - 1) // 2)
                seen = Between(min(least, pairs), min(pairs, window * sq))
            total += Between(*(2 * self.heads * size * each for each in seen))
        return total

    def attention_bytes(self, sums: RequestSums) -> Between | None:
        """Return the bytes of keys and values, queries and results; None: keys are not known."""
        if None in (sums.req, sums.sq, sums.sk):
            return None
        req, sq, sk = (int(each or 0) for each in (sums.req, sums.sq, sums.sk))
        row = self.kv_heads * (self.key_size + self.value_size)
        if self.latent is not None:
            row = sum(self.latent)
        row_bytes = row * self.dense_bits / 8
        own = sq * self.heads * (self.key_size + self.value_size) * 2 + sq * row_bytes
        total = Between(0, 0)
        for window in self.windows:
            keys = _exactly(sk)
            if window is not None:
                keys = Between(sq, min(sk, sq + req * (window - 1)))
            total += Between(*(each * row_bytes + own for each in keys))
        return total


def read_model(path: Path, shards: int) -> LanguageModel:
    """Return the model that a configuration describes, on one of the ranks that share its tensors.

    Args:
        path: `config.json`.
        shards: how many ranks there are (tensor parallel).

    Raises:
        UsageError: it is no configuration, or of an architecture that was not checked.
    """
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            msg = f"{path}: too large for a configuration"
            raise UsageError(msg)
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise UsageError(msg) from error
    except ValueError as error:
        msg = f"{path}: no JSON: {error}"
        raise UsageError(msg) from error
    try:
        return _model_of(config, shards)
    except _WrongConfigError as error:
        msg = f"{path}: {error}"
        raise UsageError(msg) from error


class _WrongConfigError(Exception):
    """Why a configuration is not taken."""


def _model_of(config: Any, shards: int) -> LanguageModel:
    if not isinstance(config, dict):
        msg = "no object with the keys of a configuration"
        raise _WrongConfigError(msg)
    name = next(iter(config.get("architectures") or ["none named"]), "none named")
    if name not in ARCHITECTURES:
        msg = f"architecture {name}: not checked; there is {', '.join(ARCHITECTURES)}"
        raise _WrongConfigError(msg)
    wrong = [key for key in config if key in _REFUSED or key.startswith(_REFUSED_BEGINNINGS)]
    wrong += [key for key in _ONE_IN_EACH_LAYER if config.get(key, 1) != 1]
    if wrong:
        msg = f"{', '.join(sorted(wrong))}: layers unlike those of {name} as checked"
        raise _WrongConfigError(msg)
    layers, hidden, vocab, all_heads = (
        _number(config, key)
        for key in ("num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads")
    )
    kv_heads = _number(config, "num_key_value_heads", all_heads)
    heads = _shared(all_heads, shards, "num_attention_heads")
    own_kv = max(1, kv_heads // shards)
    if name == "DeepseekV3ForCausalLM":
        latent, q_rank = _number(config, "kv_lora_rank"), _number(config, "q_lora_rank")
        rope, nope, value = (
            _number(config, key) for key in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
        )
        key_size = nope + rope
        attention = hidden * q_rank + q_rank * heads * key_size + hidden * (latent + rope)
        attention += latent * heads * (nope + value) + heads * value * hidden
        cache: tuple[int, int] | None = (latent, rope)
    else:
        cache = None
        key_size = value = _number(config, "head_dim", hidden // all_heads)
        attention = hidden * key_size * (heads + 2 * own_kv) + heads * value * hidden
    experts = _number(config, ("num_local_experts", "num_experts", "n_routed_experts"), 0)
    first_dense = _number(config, "first_k_dense_replace", 0) if experts else layers
    expert_size = _number(config, ("moe_intermediate_size", "intermediate_size"))
    if name == "Qwen3MoeForCausalLM" and config.get("mlp_only_layers"):
        msg = "mlp_only_layers: layers unlike those of Qwen3MoeForCausalLM as checked"
        raise _WrongConfigError(msg)
    shared = _number(config, "n_shared_experts", 0) * 3 * hidden * expert_size
    bits, kept = _bits_of(config)
    return LanguageModel(
        architecture=name, layers=layers, hidden=hidden, vocab=vocab, heads=heads,
        kv_heads=own_kv, key_size=key_size, value_size=value, latent=cache,
        windows=_windows(config, layers), attention_params=attention,
        mlp_params=_shared(3 * hidden * _number(config, "intermediate_size"), shards, "the MLP"),
        moe_layers=layers - first_dense, experts=experts,
        top_k=_number(config, ("num_experts_per_tok", "experts_per_token"), 0) if experts else 0,
        expert_params=_shared(3 * hidden * expert_size, shards, "experts") if experts else 0,
        shared_params=_shared(shared, shards, "shared experts"),
        router_params=hidden * experts, head_params=-(-vocab // shards) * hidden,
        attention_bits=16 if kept("model.layers.0.self_attn.q_proj") else bits,
        linear_bits=16 if kept("model.layers.0.mlp.down_proj") else bits,
        expert_bits=16 if kept("model.layers.0.mlp.experts.0.down_proj") else bits,
    )  # fmt: skip


def _number(
    config: Mapping[str, Any], keys: str | tuple[str, ...], default: int | None = None
) -> int:
    """Return the number of the first key that is there and not null."""
    names = (keys,) if isinstance(keys, str) else keys
    for key in names:
        value = config.get(key)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
            msg = f"{key}: {value!r} is no size"
            raise _WrongConfigError(msg)
        return value
    if default is None:
        msg = f"{names[0]} is missing"
        raise _WrongConfigError(msg)
    return default


def _shared(count: int, shards: int, what: str) -> int:
    """Return the part of one rank."""
    if count % shards:
        msg = f"{what}: {count} cannot be divided among {shards} ranks"
        raise _WrongConfigError(msg)
    return count // shards


def _windows(config: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    """Return how many keys a token of each layer sees at most."""
    window = config.get("sliding_window")
    if not window or config.get("use_sliding_window") is False:
        return (None,) * layers
    if config.get("use_sliding_window") and not config.get("layer_types"):
        msg = "use_sliding_window: which layers have a window is not listed in layer_types"
        raise _WrongConfigError(msg)
    kinds = config.get("layer_types") or ["sliding_attention"] * layers
    known = {"sliding_attention": int(window), "full_attention": None}
    if len(kinds) != layers or not set(kinds) <= known.keys():
        msg = "layer_types: not sliding_attention or full_attention of each layer"
        raise _WrongConfigError(msg)
    return tuple(known[kind] for kind in kinds)


def _bits_of(config: Mapping[str, Any]) -> tuple[float, Callable[[str], bool]]:
    """Return the bits of a quantised weight, and whether a module's weights are not quantised."""
    how = config.get("quantization_config")
    if not how:
        return 16, lambda _: True
    method = how.get("quant_method")
    if method in _BITS:
        bits = _BITS[method]
    elif method == "fp8":
        block = how.get("weight_block_size")
        bits = 8 + (32 / (block[0] * block[1]) if block else 0)
    else:
        msg = f"quantization_config: {method!r} is not known"
        raise _WrongConfigError(msg)
    names = how.get("modules_to_not_convert") or how.get("ignored_layers") or []
    patterns = [name.replace("layers.*", "layers.0") for name in names if isinstance(name, str)]

    def is_kept(module: str) -> bool:
        return any(
            fnmatch.fnmatchcase(module, name) or module.startswith(f"{name}.") for name in patterns
        )

    return bits, is_kept
