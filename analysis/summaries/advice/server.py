"""Rules on the steps of an inference server: what the device waits for, and what it does in vain.

How much of it a remedy gains depends on the requests that come, so each gain is at least nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.serving.batches import DECODE, MIXED, PREFILL
from pyprof2.analysis.serving.costs import ridge_of
from pyprof2.analysis.summaries.advice.findings import RuleFinding
from pyprof2.units import counted, format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyprof2.analysis.summaries.advice.facts import RankFacts
    from pyprof2.analysis.summaries.advice.server_facts import ServerFacts

GAP_PCT: Final = 10
WEIGHTS_PCT: Final = 30
PADDING_PCT: Final = 5
OUTSIDE_PCT: Final = 1


def _with_server(rule: Callable[[RankFacts, ServerFacts], RuleFinding | None]) -> Any:
    """Return a rule that is silent where no server's steps are recorded."""

    def find(facts: RankFacts) -> RuleFinding | None:
        return None if facts.server is None else rule(facts, facts.server)

    find.__doc__ = rule.__doc__
    return find


@_with_server
def decode_waits(facts: RankFacts, server: ServerFacts) -> RuleFinding | None:
    """The device has no work of decoding, in a step or from one to the next."""
    del facts
    own = server.of_phases(DECODE)
    gap_ns = sum(server.steps[at]["gap_ns"] for at in own)
    between_ns = 0
    for at in own:
        row, following = server.steps[at], server.steps[at + 1 : at + 2]
        if row["period_ns"] is not None and following and following[0]["phase"] == DECODE:
            between_ns += max(0, row["period_ns"] - row["span_ns"])
    pace_ns = sum(server.steps[at]["span_ns"] for at in own) + between_ns
    idle_ns = gap_ns + between_ns
    if not own or 100 * idle_ns < GAP_PCT * pace_ns:
        return None
    waited_ns = sum(server.steps[at]["wait_ns"] or 0 for at in own)
    text = (
        f"in {100 * idle_ns / pace_ns:.1f} % of the time of {counted(len(own), 'decode step')} no "
        f"work of them ran: {format_time(gap_ns)} in steps, {format_time(between_ns)} between "
        f"them; the host waited for {format_time(waited_ns)}"
    )
    limit = "the time without work of a decode step"
    return RuleFinding(text, idle_ns, 0, idle_ns, limit)


def _few_tokens(
    facts: RankFacts, server: ServerFacts, phases: tuple[str, ...], words: str
) -> RuleFinding | None:
    """Return a finding on steps whose tokens are too few for what their weights take to read."""
    device = next((device for _, device in facts.devices if device is not None), None)
    # 2 bytes are read of each weight, and 2 FLOPs are done with it for a token.
    least = ridge_of(device)
    if least is None:
        return None
    hi_ns, time_ns, weights_ns, tokens = 0.0, 0, 0, []
    for at in server.of_phases(*phases):
        row = server.steps[at]
        if None in (row["c_sq"], row["g_sq"]):
            continue
        count = row["c_sq"] + row["g_sq"]
        time_ns += row["device_ns"]
        if count < least:
            tokens.append(count)
            weights_ns += int(server.weights_ns[at])
            hi_ns += server.weights_ns[at] * (1 - count / least)
    if not tokens or 100 * weights_ns < WEIGHTS_PCT * time_ns:
        return None
    mean = format_rate(sum(tokens) / len(tokens))
    text = (
        f"{counted(len(tokens), words)} of {mean} tokens on average: weights of 16 bits keep the "
        f"products of this device busy from {least:.0f} tokens on, and reading them takes "
        f"{format_time(weights_ns)} of {format_time(time_ns)}"
    )
    limit = "the time of products with weights, for the same tokens in steps that have enough"
    # In steps of twice the tokens half of them would do.
    return RuleFinding(text, round(hi_ns), 0, min(round(hi_ns), weights_ns // 2), limit)


@_with_server
def small_decode(facts: RankFacts, server: ServerFacts) -> RuleFinding | None:
    """A decode reads all weights for few tokens."""
    return _few_tokens(facts, server, (DECODE,), "decode step")


@_with_server
def small_chunks(facts: RankFacts, server: ServerFacts) -> RuleFinding | None:
    """A prefill reads all weights for few tokens, and there are several in a row."""
    if len(server.of_phases(PREFILL, MIXED)) < 2:
        return None
    return _few_tokens(facts, server, (PREFILL, MIXED), "prefill step")


@_with_server
def padding(facts: RankFacts, server: ServerFacts) -> RuleFinding | None:
    """A graph was captured for more requests, or tokens, than a step has."""
    del facts
    hi_ns, time_ns, steps = 0.0, 0, 0
    for at in server.of_phases(DECODE, MIXED, PREFILL):
        row = server.steps[at]
        tokens = None if None in (row["c_sq"], row["g_sq"]) else row["c_sq"] + row["g_sq"]
        own = row["requests"] if tokens is None else tokens
        time_ns += row["device_ns"]
        if row["padded"] and own and row["padded"] > own:
            steps += 1
            hi_ns += row["device_ns"] * (1 - own / row["padded"])
    if not steps or 100 * hi_ns < PADDING_PCT * time_ns:
        return None
    text = (
        f"{counted(steps, 'step')} with {100 * hi_ns / time_ns:.1f} % of the work of all for "
        "padding"
    )
    return RuleFinding(text, round(hi_ns), 0, round(hi_ns), "the share of the padding in the work")


@_with_server
def sampling_outside(facts: RankFacts, server: ServerFacts) -> RuleFinding | None:
    """Sampling follows the graph of a decode, launched piece by piece."""
    del facts
    own = [at for at in server.of_phases(DECODE) if server.tail[at] is not None]
    tail_ns, idle_ns = (sum((server.tail[at] or (0, 0))[part] for at in own) for part in (0, 1))
    span_ns = sum(server.steps[at]["span_ns"] for at in own)
    if not own or 100 * tail_ns < OUTSIDE_PCT * span_ns:
        return None
    text = (
        f"sampling is outside of the graph: {100 * tail_ns / span_ns:.1f} % of "
        f"{counted(len(own), 'decode step')} pass from the end of the graph to the end of the step"
    )
    return RuleFinding(text, tail_ns, 0, idle_ns, "the time after the graph")
