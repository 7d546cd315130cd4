"""Names of batches, against lists of requests that the sums were added up of one by one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from pyprof2.analysis.serving.batches import Batch, RequestSums, batch_from, batch_of

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of each name the phase, the requests, and the sums that it says: of context, of generation.
NAMES: Final = {
    "execute_new_3_cached_29": (None, 32, (), ()),
    "execute_context_2(6144)_generation_3(3)": ("mixed", 5, (2, 6144), (3, 3, None, 3)),
    "execute_context_0(0)_generation_4(12)": ("decode", 4, (0,) * 5, (4, 12)),
    "execute_context_1(888_788544)_generation_0(0)": (
        "prefill", 1, (1, 888, None, 788544), (0,) * 5,
    ),
    "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)"
    "_generation_37(sq37sk34489sqsq37sqsk34489)": (
        "mixed", 46, (9, 8155, 8430, 7475785, 7671310), (37, 37, 34489, 37, 34489),
    ),
    "step[DECODE bs=32]": ("decode", 32, (0,) * 5, (32, 32, None, 32)),
    "step[EXTEND bs=15 toks=15360]": ("prefill", 15, (15, 15360), (0,) * 5),
    "step[SPLIT_PREFILL bs=1]": ("prefill", 1, (1,), (0,) * 5),
    "step[MIXED bs=2]": ("mixed", 2, (), ()),
    "step[IDLE bs=0]": ("idle", 0, (0,) * 5, (0,) * 5),
    "step[TARGET_VERIFY bs=3]": ("verify", 3, (0,) * 5, (3,)),
    "step[DRAFT_EXTEND_V2 bs=3]": ("draft", 3, (), ()),
    "step[SOMETHING_NEW bs=3]": (None, 3, (), ()),
    "step[DECODE bs=2 g_sqsq=2 g_sqsk=30 g_sk=30]": ("decode", 2, (0,) * 5, (2, 2, 30, 2, 30)),
    "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=5 c_sqsq=25 c_sqsk=25 "
    "g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]": ("mixed", 2, (1, 5, 5, 25, 25), (1, 1, 12, 1, 12)),
    "prefill[bs=2 tok=14721 ctx=[7803, 6918]]": (
        "prefill", 2, (2, 14721, 14721, 7803**2 + 6918**2, 7803**2 + 6918**2), (0,) * 5,
    ),
    "prefill[bs=2 tok=20 ctx=[30, 10]]": ("prefill", 2, (2, 20, 40), (0,) * 5),
    "prefill[bs=5 tok=100 ctx=[50, 20]...+3]": ("prefill", 5, (5, 100), (0,) * 5),
    "decode[bs=117/128 tok=117 d=117]": ("decode", 117, (0,) * 5, (117, 117, None, 117)),
    "decode[bs=4 tok=16 d=4 spec=3]": ("decode", 4, (0,) * 5, (4, 16)),
    "decode[bs=4 tok=16 d=2 p=2]": ("mixed", 4, (), ()),
    "[Executor] _forward_step 7: 2 ctx reqs, 512 ctx tokens, 30 gen reqs": (
        "mixed", 32, (2, 512), (30,),
    ),
    "[Executor] _forward_step: 0 ctx reqs, 30 gen reqs": ("decode", 30, (0,) * 5, (30,)),
    "execute_diffusion_1_256x256": ("diffusion", 1, (), ()),
}  # fmt: skip

NO_NAMES: Final = (
    "", "step", "step[DECODE]", "step[DECODE bs=]", "step[DECODE bs=2] ", " step[DECODE bs=2]",
    "step[DECODE bs=2 x=1]", "step[decode bs=2]", "my step[DECODE bs=2]", "step[DECODE bs=-2]",
    "MoE[experts=64, tokens=16, k=2]", "expert_ffn[4]", "gpu_model_runner: forward", "draft",
    "draft_extend", "capture_32_FULL", "## Call CompiledFxGraph f3 ##", "ProfilerStep#3",
    "execute_context_2(6144)", "execute_context_2(6144)_generation_3(3)\n",
    "execute_context_2(6144)_generation_3(3", "execute_new_3_cached_", "prefill[bs=2",
    "decode[bs=1 tok=1 who=3]", f"step[DECODE bs={'9' * 40}]", "step[DECODE bs=٣]",
    "[Executor] _forward_step 7: 2 ctx reqs", "execute_diffusion_1_256",
)  # fmt: skip

# RequestSums that no list of requests has.
CONTRADICTIONS: Final = {
    "sq < requests": (5, 4, 9, 4, 9),
    "sk < sq": (1, 8, 7, 64, 56),
    "sqsq > sq * sq": (2, 4, 9, 17, 20),
    "sqsk < sqsq": (2, 4, 9, 10, 9),
    "sqsq < sq * sq / requests": (2, 9, 9, 40, 41),
    "sqsk > sq * sk": (2, 4, 9, 8, 37),
    "tokens without requests": (0, 1, 1, 1, 1),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_says_its_phase_and_what_is_sure(name: str) -> None:
    phase, requests, context, generation = NAMES[name]

    batch = batch_of(name)

    assert batch is not None
    assert (batch.phase, batch.requests, batch.contradiction) == (phase, requests, None)
    assert (batch.context, batch.generation) == (RequestSums(*context), RequestSums(*generation))


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_only_looks_alike_is_no_batch(name: str) -> None:
    assert batch_of(name) is None


@pytest.mark.parametrize("words", CONTRADICTIONS)
def test_sums_that_no_requests_have_are_not_taken(words: str) -> None:
    req, *sums = CONTRADICTIONS[words]

    batch = batch_of(_detailed(1000, (req, *sums), (1, 1, 5, 1, 5)))

    assert batch is not None
    assert batch.contradiction == f"context: {words}"
    assert (batch.context, batch.generation) == (RequestSums(req), RequestSums(1))
    assert batch.requests == req + 1


def test_fewer_tokens_in_all_than_of_requests_contradict() -> None:
    batch = batch_of(_detailed(3, (1, 3, 3, 9, 9), (1, 1, 5, 1, 5)))

    assert batch is not None
    assert batch.contradiction == "3 tokens in all, 4 of requests"
    assert batch.context == RequestSums(1)


def test_requests_of_a_mixed_batch_must_add_up() -> None:
    batch = batch_of("step[MIXED bs=5 c=1 g=1]")

    assert batch is not None
    assert batch.contradiction is not None
    assert (batch.requests, batch.context) == (5, RequestSums())


def test_random_requests_come_back_from_the_name_of_their_batch() -> None:
    random = np.random.default_rng(7)
    for _ in range(2000):
        kinds = [_requests(random), _requests(random, draft=int(random.integers(1, 4)))]
        sums = [_added_up(each) for each in kinds]
        tokens = sum(each[1] for each in sums)
        padded = int(random.choice([0, 7]))

        batch = batch_of(_detailed(tokens + padded, *sums))

        assert isinstance(batch, Batch)
        assert batch.contradiction is None
        assert [batch.context, batch.generation] == [RequestSums(*each) for each in sums]
        assert batch.padded == (tokens + padded if padded else None)


def test_a_pattern_of_the_users_own_names_sums() -> None:
    pattern = re.compile(r"run (?P<phase>\w+) (?P<g_req>\d+)/(?P<padded>\d+) keys (?P<g_sk>\d+)")

    batch = batch_from("run decode 3/8 keys 90", pattern)

    assert batch is not None
    assert (batch.phase, batch.padded, batch.requests) == ("decode", 8, None)
    assert batch.generation == RequestSums(3, None, 90)
    assert batch_from("run decode 3/8 keys 90 twice", pattern) is None


def _requests(random: np.random.Generator, draft: int | None = None) -> list[tuple[int, int]]:
    """Return new tokens and keys of some requests."""
    count = int(random.integers(0, 6))
    new = [draft or int(random.integers(1, 500)) for _ in range(count)]
    return [(each, each + int(random.integers(0, 4000))) for each in new]


def _added_up(requests: Sequence[tuple[int, int]]) -> tuple[int, int, int, int, int]:
    req = sq = sk = sqsq = sqsk = 0
    for new, keys in requests:
        req, sq, sk = req + 1, sq + new, sk + keys
        sqsq, sqsk = sqsq + new * new, sqsk + new * keys
    return req, sq, sk, sqsq, sqsk


def _detailed(tokens: int, *kinds: Sequence[int]) -> str:
    words = [f"{req}(sq{sq}sk{sk}sqsq{sqsq}sqsk{sqsk})" for req, sq, sk, sqsq, sqsk in kinds]
    return f"execute_{tokens}_context_{words[0]}_generation_{words[1]}"
