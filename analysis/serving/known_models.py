"""Sizes of models that are often served, to say which of them a recording does not contradict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyprof2.analysis.serving import facts

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHARDS: Final = (1, 2, 4, 8, 16, 32)


class _KnownModel(NamedTuple):
    """The sizes of a model; of latent attention heads are not recorded by size, so none is here."""

    name: str
    layers: int
    hidden: int
    heads: int | None
    kv_heads: int | None
    head_size: int | None
    vocab: int
    experts: int = 0


_MODELS: Final = tuple(
    _KnownModel(*each)
    for each in (
        ("Llama-2-7B", 32, 4096, 32, 32, 128, 32000),
        ("Llama-2-13B", 40, 5120, 40, 40, 128, 32000),
        ("Llama-2-70B", 80, 8192, 64, 8, 128, 32000),
        ("Llama-3.1-8B", 32, 4096, 32, 8, 128, 128256),
        ("Llama-3.1-70B", 80, 8192, 64, 8, 128, 128256),
        ("Llama-3.1-405B", 126, 16384, 128, 8, 128, 128256),
        ("Llama-3.2-1B", 16, 2048, 32, 8, 64, 128256),
        ("Llama-3.2-3B", 28, 3072, 24, 8, 128, 128256),
        ("Mistral-7B", 32, 4096, 32, 8, 128, 32000),
        ("Mistral-7B-v0.3", 32, 4096, 32, 8, 128, 32768),
        ("Mistral-Nemo-12B", 40, 5120, 32, 8, 128, 131072),
        ("Mixtral-8x7B", 32, 4096, 32, 8, 128, 32000, 8),
        ("Mixtral-8x22B", 56, 6144, 48, 8, 128, 32768, 8),
        ("Qwen2.5-0.5B", 24, 896, 14, 2, 64, 151936),
        ("Qwen2.5-1.5B", 28, 1536, 12, 2, 128, 151936),
        ("Qwen2.5-3B", 36, 2048, 16, 2, 128, 151936),
        ("Qwen2.5-7B", 28, 3584, 28, 4, 128, 152064),
        ("Qwen2.5-14B", 48, 5120, 40, 8, 128, 152064),
        ("Qwen2.5-32B", 64, 5120, 40, 8, 128, 152064),
        ("Qwen2.5-72B", 80, 8192, 64, 8, 128, 152064),
        ("Qwen3-0.6B", 28, 1024, 16, 8, 128, 151936),
        ("Qwen3-1.7B", 28, 2048, 16, 8, 128, 151936),
        ("Qwen3-4B or Qwen3-VL-4B", 36, 2560, 32, 8, 128, 151936),
        ("Qwen3-8B or Qwen3-VL-8B", 36, 4096, 32, 8, 128, 151936),
        ("Qwen3-14B", 40, 5120, 40, 8, 128, 151936),
        ("Qwen3-32B or Qwen3-VL-32B", 64, 5120, 64, 8, 128, 151936),
        ("Qwen3-30B-A3B or Qwen3-VL-30B-A3B", 48, 2048, 32, 4, 128, 151936, 128),
        ("Qwen3-235B-A22B or Qwen3-VL-235B-A22B", 94, 4096, 64, 4, 128, 151936, 128),
        ("gpt-oss-20b", 24, 2880, 64, 8, 64, 201088, 32),
        ("gpt-oss-120b", 36, 2880, 64, 8, 64, 201088, 128),
        ("DeepSeek-V3 or DeepSeek-R1", 61, 7168, None, None, None, 129280, 256),
        ("Kimi-K2", 61, 7168, None, None, None, 163840, 384),
        ("MiniMax-M2", 62, 3072, 48, 8, 128, 200064, 256),
    )
)


def not_contradicted(recorded: facts.Facts) -> list[str]:
    """Return the names of known models that a recording's facts agree with, on any number of ranks.

    Args:
        recorded: see `facts.recorded_facts`; where the layers are not known, none is named.
    """
    if len(recorded.get(facts.LAYERS, ())) != 1:
        return []
    return [
        model.name
        for model in _MODELS
        if any(not facts.contradictions(recorded, each) for each in _expected(model))
    ]


def _expected(model: _KnownModel) -> Iterator[dict[str, facts.Expected]]:
    """Yield what a recording of a model may say on each number of ranks that can share it."""
    for shards in _SHARDS:
        if model.heads and model.heads % shards:
            continue
        values = {
            facts.LAYERS: model.layers, facts.HIDDEN: model.hidden,
            facts.EXPERT_COUNT: model.experts,
        }  # fmt: skip
        if model.heads and model.kv_heads and model.head_size:
            values |= {
                facts.HEADS: model.heads // shards,
                facts.KV_HEADS: max(1, model.kv_heads // shards),
                facts.HEAD_SIZE: model.head_size,
            }
        found = {name: facts.Expected(each, frozenset({each})) for name, each in values.items()}
        yield found | {facts.VOCABULARY: facts.vocabulary(model.vocab, shards)}
