"""The cost of a step of a language model by its configuration: FLOPs, and bytes that it reads.

The configuration is Hugging Face's `config.json`. Only architectures whose layers are as described
here are taken, and keys that would change them are refused: a model read wrong is worse than none.
Formulas are those of the dense decoder (Vaswani et al., "Attention Is All You Need", 2017; gated
MLP of Shazeer, 2020), grouped queries (Ainslie et al., 2023), latent attention (DeepSeek-V2, 2024).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyprof2.analysis.serving.kinds import (
    ATTENTION,
    DOWN,
    EXPERTS,
    GATE_UP,
    KV_WRITE,
    LM_HEAD,
    OUT,
    QKV,
    ROUTER,
)
from pyprof2.analysis.serving.quantisation import (
    DENSE_BITS,
    DENSE_TYPE,
    Quantisation,
    WrongConfigError,
    quantisation_of,
    refuse,
)
from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyprof2.analysis.serving.batches import RequestSums

_LATENT: Final = "DeepseekV3ForCausalLM"
ARCHITECTURES: Final = (
    "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM", "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration", "MixtralForCausalLM", "GptOssForCausalLM", _LATENT,
    "MiniMaxM2ForCausalLM",
)  # fmt: skip
"""Those whose numbers were checked against those that their authors state."""

_REFUSED: Final = (
    "block_configs", "interleave_moe_layer_step", "hybrid_layer_pattern",
    "num_global_key_value_heads", "attention_chunk_size", "attn_output_gate", "index_topk",
    "hybrid_override_pattern",
)  # fmt: skip
_ONE_IN_EACH_LAYER: Final = ("moe_layer_freq", "decoder_sparse_step")
_REFUSED_BEGINNINGS: Final = ("linear_", "mamba_")
_REFUSED_VALUES: Final = ("mlp_only_layers", "shared_intermediate_size")
"""Keys that change layers where they have a value."""
_SHARED_EXPERTS: Final = "shared experts"
_MODULES: Final = {
    QKV: ("self_attn.q_proj", "self_attn.q_a_proj", "self_attn.qkv_proj"),
    OUT: ("self_attn.o_proj",), GATE_UP: ("mlp.gate_proj", "mlp.gate_up_proj"),
    DOWN: ("mlp.down_proj",),
    _SHARED_EXPERTS: ("mlp.shared_experts.down_proj",),
    EXPERTS: ("mlp.experts.0.down_proj", "mlp.experts", "block_sparse_moe.experts.0.w1"),
}  # fmt: skip
"""The names of a module of each kind in a layer: no more than one of them is there."""
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


class KindWeights(NamedTuple):
    """The weights of one kind that each token is multiplied with.

    Attributes:
        params: how many there are in all layers, on one rank.
        bits: of each, scales included.
        type: in which products are computed.
    """

    params: int
    bits: float = DENSE_BITS
    type: str = DENSE_TYPE


class KindCost(NamedTuple):
    """The work of a kind of layer in a step.

    Attributes:
        flops, bytes: counts; None: not known.
    """

    flops: Between | None
    bytes: Between | None


@dataclass(frozen=True)
class LanguageModel:
    """A language model, as it is divided among the ranks that share its tensors.

    Attributes:
        architecture: its name.
        shards: how many ranks share it.
        layers: how many there are.
        hidden, vocab: sizes.
        heads, kv_heads: of queries, and of keys and values, on one rank.
        key_size, value_size: of a head.
        latent: of latent attention the sizes of a token's row of the cache, and of its rotary part;
            None: keys and values are kept by head.
        windows: of each layer how many keys a token sees at most; None: all before it.
        weights: by kind, those that each token goes through; of experts those that are shared.
        moe_layers: how many layers have experts.
        experts, top_k: how many there are in a layer, and how many a token goes to.
        expert: the weights of one of them.
        mlp_size: the inner size of a dense layer's MLP on one rank; 0: no layer is dense.
        cache_bits: of a key's or value's number; None: the configuration does not say.
    """

    architecture: str
    shards: int
    layers: int
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    latent: tuple[int, int] | None
    windows: tuple[int | None, ...]
    weights: Mapping[str, KindWeights]
    moe_layers: int
    experts: int
    top_k: int
    expert: KindWeights
    mlp_size: int
    cache_bits: int | None = None

    @property
    def params(self) -> int:
        """KindWeights on one rank, without the embedding, norms and biases."""
        routed = self.moe_layers * self.experts * self.expert.params
        return routed + sum(each.params for each in self.weights.values())

    def type_of(self, kind: str) -> str:
        """Return in which type products of a kind are computed."""
        of_kind = self.expert if kind == EXPERTS else self.weights.get(kind)
        return DENSE_TYPE if of_kind is None else of_kind.type

    def experts_touched(self, tokens: int) -> float:
        """Return how many experts of a layer are read if each token goes to any with one chance."""
        return self.experts * (1 - (1 - self.top_k / self.experts) ** tokens)

    def costs(self, context: RequestSums, generation: RequestSums) -> dict[str, KindCost]:
        """Return what each kind of layer takes in a step; nothing where its tokens are not known.

        Args:
            context: the sums of the requests that have no token of their output yet.
            generation: the sums of those that have.
        """
        if context.sq is None or generation.sq is None:
            return {}
        tokens, outputs = context.sq + generation.sq, context.req
        if outputs is not None:
            outputs += generation.sq
        found = {}
        for kind, own in self.weights.items():
            times = outputs if kind == LM_HEAD else tokens
            size = own.params * own.bits / 8 if tokens else 0
            flops = None if times is None else _exactly(2 * times * own.params)
            found[kind] = KindCost(flops, _exactly(size))
        if self.experts:
            shared, each = found.get(EXPERTS), self.moe_layers * self.expert.params
            used = min(self.top_k, tokens * self.top_k), min(self.experts, self.top_k * tokens)
            flops = _exactly(2 * tokens * self.top_k * each)
            read = Between(*(count * each * self.expert.bits / 8 for count in used))
            if shared is not None and shared.flops is not None and shared.bytes is not None:
                flops, read = flops + shared.flops, read + shared.bytes
            found[EXPERTS] = KindCost(flops, read)
        both = context, generation
        # Where a prefill runs along, keys and values are made of the rows of latent attention.
        absorbed = not context.req
        pairs = added(self.attention_flops(each, absorbed=absorbed) for each in both)
        found[ATTENTION] = KindCost(pairs, added(map(self.attention_bytes, both)))
        written = tokens * self.layers * self._row_bytes
        found[KV_WRITE] = KindCost(_exactly(0), _exactly(written))
        return found

    @property
    def _row_bytes(self) -> float:
        """The bytes that a layer keeps of a token."""
        row = self.kv_heads * (self.key_size + self.value_size)
        if self.latent is not None:
            row = sum(self.latent)
        return row * (self.cache_bits or DENSE_BITS) / 8

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
        """Return the bytes of keys and values read, queries, results; None: keys are not known."""
        if None in (sums.req, sums.sq, sums.sk):
            return None
        req, sq, sk = (int(each or 0) for each in (sums.req, sums.sq, sums.sk))
        own = sq * self.heads * (self.key_size + self.value_size) * DENSE_BITS / 8
        total = Between(0, 0)
        for window in self.windows:
            keys = _exactly(sk)
            if window is not None:
                keys = Between(sq, min(sk, sq + req * (window - 1)))
            total += Between(*(each * self._row_bytes + own for each in keys))
        return total


def added(parts: Iterable[Between | None]) -> Between | None:
    """Return the sum; None: one is not known."""
    total = Between(0, 0)
    for each in parts:
        if each is None:
            return None
        total += each
    return total


def read_model(path: Path, shards: int) -> LanguageModel:
    """Return the model that a configuration describes, on one of the ranks that share its tensors.

    Args:
        path: `config.json`; beside it may be `hf_quant_config.json`.
        shards: how many ranks there are (tensor parallel).

    Raises:
        UsageError: it is no configuration, or of an architecture that was not checked.
    """
    config = _read(path)
    other = path.with_name(path.name.replace("config.json", "hf_quant_config.json"))
    beside = _read(other) if other != path and other.is_file() else None
    try:
        return _model_of(config, beside, shards)
    except WrongConfigError as error:
        msg = f"{path}: {error}"
        raise UsageError(msg) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        msg = f"{path}: values are not of the form of a configuration: {error}"
        raise UsageError(msg) from error


def _read(path: Path) -> Any:
    """Return the content of a file of JSON."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            msg = f"{path}: too large for a configuration"
            raise UsageError(msg)
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise UsageError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"{path}: no JSON: {error}"
        raise UsageError(msg) from error


def _model_of(config: Any, beside: Any, shards: int) -> LanguageModel:
    if not isinstance(config, dict) or not isinstance(beside, dict | None):
        refuse("no object with the keys of a configuration")
    name = next(iter(config.get("architectures") or ["none named"]), "none named")
    if name not in ARCHITECTURES:
        refuse(f"architecture {name}: not checked; there is {', '.join(ARCHITECTURES)}")
    config |= config.get("text_config") or {}
    wrong = [key for key in config if key in _REFUSED or key.startswith(_REFUSED_BEGINNINGS)]
    wrong += [key for key in _ONE_IN_EACH_LAYER if config.get(key, 1) != 1]
    wrong += [key for key in _REFUSED_VALUES if config.get(key)]
    if set(config.get("attn_type_list") or [1]) != {1}:
        wrong.append("attn_type_list")
    if wrong:
        refuse(f"{', '.join(sorted(wrong))}: layers unlike those of {name} as checked")
    layers, hidden, vocab = (
        _number(config, key) for key in ("num_hidden_layers", "hidden_size", "vocab_size")
    )
    sizes = _attention_of(config, name, shards)
    experts = _number(config, ("num_local_experts", "num_experts", "n_routed_experts"), 0)
    dense = _number(config, "first_k_dense_replace", 0) if experts else layers
    if dense > layers:
        refuse(f"first_k_dense_replace: {dense} of {layers} layers")
    form, all_layers = quantisation_of(config, beside), range(layers)
    mlp = _number(config, "intermediate_size") if dense else 0
    mlp = _shared(mlp, shards, "intermediate_size")
    weights = {
        QKV: _weights(form, QKV, sizes.qkv_params, all_layers),
        OUT: _weights(form, OUT, sizes.heads * sizes.value_size * hidden, all_layers),
    }
    if dense:
        first = all_layers[:dense]
        weights[GATE_UP] = _weights(form, GATE_UP, 2 * hidden * mlp, first)
        weights[DOWN] = _weights(form, DOWN, hidden * mlp, first)
    expert, rest = KindWeights(0), all_layers[dense:]
    if experts:
        size = _number(config, ("moe_intermediate_size", "intermediate_size"))
        own = 3 * hidden * _shared(size, shards, "the size of experts")
        expert = _weights(form, EXPERTS, own, rest)._replace(params=own)
        weights[ROUTER] = KindWeights(len(rest) * hidden * experts)
        if shared := _number(config, "n_shared_experts", 0):
            weights[EXPERTS] = _weights(form, _SHARED_EXPERTS, shared * own, rest)
    weights[LM_HEAD] = KindWeights(-(-vocab // shards) * hidden)
    return LanguageModel(
        architecture=name, shards=shards, layers=layers, hidden=hidden, vocab=vocab,
        heads=sizes.heads, kv_heads=sizes.kv_heads, key_size=sizes.key_size,
        value_size=sizes.value_size, latent=sizes.latent, windows=_windows(config, layers),
        weights=weights, moe_layers=len(rest), experts=experts, expert=expert, mlp_size=mlp,
        cache_bits=form.cache_bits,
        top_k=_number(config, ("num_experts_per_tok", "experts_per_token")) if experts else 0,
    )  # fmt: skip


class _Attention(NamedTuple):
    """Attention on one rank; the names are those of `LanguageModel`."""

    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    latent: tuple[int, int] | None
    qkv_params: int


def _attention_of(config: Mapping[str, Any], name: str, shards: int) -> _Attention:
    hidden, all_heads = _number(config, "hidden_size"), _number(config, "num_attention_heads")
    heads = _shared(all_heads, shards, "num_attention_heads")
    kv_heads = max(1, _number(config, "num_key_value_heads", all_heads) // shards)
    if name != _LATENT:
        size = _number(config, "head_dim", hidden // max(1, all_heads))
        params = hidden * size * (heads + 2 * kv_heads)
        return _Attention(heads, kv_heads, size, size, None, params)
    row, q_rank = _number(config, "kv_lora_rank"), _number(config, "q_lora_rank")
    rope, nope, value = (
        _number(config, key) for key in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    )
    params = hidden * q_rank + q_rank * heads * (nope + rope) + hidden * (row + rope)
    params += row * heads * (nope + value)
    return _Attention(heads, kv_heads, nope + rope, value, (row, rope), params)


def _weights(form: Quantisation, kind: str, params: int, layers: range) -> KindWeights:
    """Return weights that each of some layers has; where some are not quantised, the mean bits."""
    names = [[f"model.layers.{at}.{module}" for module in _MODULES[kind]] for at in layers]
    kept = form.share_kept(names)
    bits = kept * DENSE_BITS + (1 - kept) * form.bits
    return KindWeights(len(layers) * params, bits, DENSE_TYPE if kept else form.type)


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
            refuse(f"{key}: {value!r} is no size")
        return value
    if default is None:
        refuse(f"{names[0]} is missing")
    return default


def _shared(count: int, shards: int, what: str) -> int:
    """Return the part of one rank."""
    if count % shards:
        refuse(f"{what}: {count} cannot be divided among {shards} ranks")
    return count // shards


def _windows(config: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    """Return how many keys a token of each layer sees at most."""
    window = config.get("sliding_window")
    if not window or config.get("use_sliding_window") is False:
        return (None,) * layers
    if config.get("use_sliding_window") and not config.get("layer_types"):
        refuse("use_sliding_window: which layers have a window is not listed in layer_types")
    kinds = config.get("layer_types") or ["sliding_attention"] * layers
    known = {"sliding_attention": int(window), "full_attention": None}
    if len(kinds) != layers or not set(kinds) <= known.keys():
        refuse("layer_types: not sliding_attention or full_attention of each layer")
    return tuple(known[kind] for kind in kinds)
