"""Batches of inference servers, by the name of the range around each.

A name counts only where all of it is in one of the forms below, so a range of the user's own that
looks alike stays one. Of the requests of a batch, which are in context (no token of the output yet:
each chunk of a prefill) or in generation, names give sums: the new tokens (`sq`), the keys that
they attend to, the new ones included (`sk`), and the sums of `sq * sq` and of `sq * sk`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

PREFILL: Final = "prefill"
EXTEND: Final = "extend"
DECODE: Final = "decode"
MIXED: Final = "mixed"
IDLE: Final = "idle"
VERIFY: Final = "verify"
DRAFT: Final = "draft"
DIFFUSION: Final = "diffusion"
PHASES: Final = (PREFILL, EXTEND, MIXED, DECODE, VERIFY, DRAFT, DIFFUSION, IDLE)

_MODES: Final = {
    "EXTEND": PREFILL, "SPLIT_PREFILL": PREFILL, "DLLM_EXTEND": PREFILL, "DECODE": DECODE,
    "MIXED": MIXED, "IDLE": IDLE, "PREBUILT": IDLE, "TARGET_VERIFY": VERIFY, "VERIFY": VERIFY,
    "DRAFT_EXTEND": DRAFT, "DRAFT_EXTEND_V2": DRAFT,
}  # fmt: skip
"""The phases of SGLang's forward modes; of another mode the phase is unknown."""

_N: Final = r"(\d{1,15})"
"""A number of which sums and squares still fit into 64 bits."""
_SUMS: Final = rf"sq{_N}sk{_N}sqsq{_N}sqsk{_N}"
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True)
class RequestSums:
    """RequestSums over the requests of one kind in a batch; None: not known.

    Attributes:
        req: how many requests there are.
        sq: their new tokens.
        sk: the keys that these attend to, the new ones included.
        sqsq: the sum of the squares of each request's new tokens.
        sqsk: the sum of each request's new tokens times its keys.
    """

    req: int | None = None
    sq: int | None = None
    sk: int | None = None
    sqsq: int | None = None
    sqsk: int | None = None

    def contradiction(self) -> str | None:
        """Return which of the sums no list of requests has; None: there is such a list."""
        req, sq, sk, sqsq, sqsk = self.req, self.sq, self.sk, self.sqsq, self.sqsk
        if req == 0 and any((sq, sk, sqsq, sqsk)):
            return "tokens without requests"
        rules = (
            ("sq < requests", _both(sq, req, lambda a, b: a < b)),
            ("sk < sq", _both(sk, sq, lambda a, b: a < b)),
            ("sqsq > sq * sq", _both(sqsq, sq, lambda a, b: a > b * b)),
            ("sqsk < sqsq", _both(sqsk, sqsq, lambda a, b: a < b)),
            (
                "sqsq < sq * sq / requests",
                bool(req) and _both(sqsq, sq, lambda a, b: a * (req or 1) < b * b),
            ),
            ("sqsk > sq * sk", sk is not None and _both(sqsk, sq, lambda a, b: a > b * sk)),
        )
        return next((words for words, is_so in rules if is_so), None)

    def filled(self) -> RequestSums:
        """Return the sums with those that the others leave no choice of."""
        if self.req == 0:
            return RequestSums(0, 0, 0, 0, 0)
        found = self
        if found.sq is not None:
            if found.req == 1:
                keys = None if found.sk is None else found.sq * found.sk
                found = found.known(sqsq=found.sq**2, sqsk=keys)
            elif found.sq == found.req:
                # Each request has one new token.
                found = found.known(sqsq=found.sq, sqsk=found.sk)
        return found

    def known(self, **sums: int | None) -> RequestSums:
        """Return the sums with others where they are unknown and fit into 64 bits."""
        new = {
            name: value
            for name, value in sums.items()
            if getattr(self, name) is None and value is not None and value <= _LARGEST
        }
        return replace(self, **new)


def _both(first: int | None, other: int | None, holds: Callable[[int, int], bool]) -> bool:
    return first is not None and other is not None and holds(first, other)


NO_SUMS: Final = RequestSums()


@dataclass(frozen=True)
class Batch:
    """The facts about a batch in a name.

    Attributes:
        dialect: the server's form of the name.
        phase: one of `PHASES`; None: not known.
        requests: how many there are; None: not known.
        context, generation: the sums of the requests of each kind.
        padded: for how many requests the graph that ran was captured.
        contradiction: why the sums are not taken; None: they are.
    """

    dialect: str
    phase: str | None
    requests: int | None
    context: RequestSums = NO_SUMS
    generation: RequestSums = NO_SUMS
    padded: int | None = None
    contradiction: str | None = None

    def without_sums(self, contradiction: str) -> Batch:
        """Return the batch with its requests alone, as its sums contradict something."""
        return replace(
            self,
            context=RequestSums(self.context.req),
            generation=RequestSums(self.generation.req),
            contradiction=contradiction,
        )

    @property
    def tokens(self) -> int | None:
        """The new tokens of all requests; None: not known."""
        both = self.context.sq, self.generation.sq
        return None if None in both else sum(map(int, filter(None, both)))

    @property
    def known_count(self) -> int:
        """How much the name says: the number of sums that are known."""
        both = (self.context, self.generation)
        return sum(getattr(sums, field.name) is not None for sums in both for field in fields(sums))


@lru_cache(maxsize=1 << 16)
def batch_of(name: str) -> Batch | None:
    """Return what a range's name says of a batch; None: it is no step of a server."""
    for pattern, read in _FORMS:
        if found := pattern.fullmatch(name):
            return _checked(read(found))
    return None


def batch_from(name: str, pattern: re.Pattern[str]) -> Batch | None:
    """Return what a name says by the user's own pattern; None: it does not match.

    Args:
        name: of a range.
        pattern: with any groups of the names `phase`, `requests`, `c_req`, `c_sq`, … `g_sqsk`,
            `padded`.
    """
    found = pattern.fullmatch(name)
    if found is None:
        return None
    groups = {name: text for name, text in found.groupdict().items() if text is not None}
    number = {name: int(text) for name, text in groups.items() if text.isdecimal()}
    context, generation = (_sums_of(number, kind) for kind in "cg")
    phase = groups.get("phase", _phase(context.req, generation.req))
    requests = number.get("requests", _total(context.req, generation.req))
    return _checked(Batch("pattern", phase, requests, context, generation, number.get("padded")))


def _checked(batch: Batch) -> Batch:
    """Return a batch whose sums are filled, or gone where they contradict each other."""
    for kind, sums in (("context", batch.context), ("generation", batch.generation)):
        if words := sums.contradiction():
            return batch.without_sums(f"{kind}: {words}")
    return replace(batch, context=batch.context.filled(), generation=batch.generation.filled())


def _phase(c_req: int | None, g_req: int | None) -> str | None:
    """Return the phase of a batch by its requests of either kind."""
    if c_req is None or g_req is None:
        return None
    if c_req:
        return MIXED if g_req else PREFILL
    return DECODE if g_req else IDLE


def _total(c_req: int | None, g_req: int | None) -> int | None:
    return None if c_req is None or g_req is None else c_req + g_req


def _sums_of(number: Mapping[str, int], kind: str) -> RequestSums:
    return RequestSums(*(number.get(f"{kind}_{field.name}") for field in fields(RequestSums)))


def _counted(
    dialect: str, context: RequestSums, generation: RequestSums, padded: int | None = None
) -> Batch:
    """Return a batch whose requests of both kinds are known."""
    phase = _phase(context.req, generation.req)
    requests = _total(context.req, generation.req)
    return Batch(dialect, phase, requests, context, generation, padded)


def _numbers(texts: Iterable[str | None]) -> list[int | None]:
    """Return the numbers of a name; None for those that it leaves out."""
    return [None if text is None else int(text) for text in texts]


def _of_requests(dialect: str, numbers: Sequence[int | None]) -> Batch:
    """Return a batch by the requests and new tokens of either kind."""
    c_req, c_sq, g_req, g_sq = numbers
    return _counted(dialect, RequestSums(c_req, c_sq), RequestSums(g_req, g_sq))


def _vllm_detailed(found: re.Match[str]) -> Batch:
    total, *numbers = map(int, found.groups())
    context, generation = RequestSums(*numbers[:5]), RequestSums(*numbers[5:])
    batch = _counted("vllm detailed", context, generation)
    tokens = (context.sq or 0) + (generation.sq or 0)
    if total < tokens:
        return batch.without_sums(f"{total} tokens in all, {tokens} of requests")
    return replace(batch, padded=total if total > tokens else None)


def _sglang(found: re.Match[str]) -> Batch:
    mode, requests = found[1], int(found[2])
    number = {name: int(text) for name, text in re.findall(r"\b(\w+)=(\d+)", found[3])}
    phase = _MODES.get(mode)
    c_req = {PREFILL: requests, DECODE: 0, VERIFY: 0, IDLE: 0}.get(phase or "", number.get("c"))
    g_req = {PREFILL: 0, DECODE: requests, VERIFY: requests, IDLE: 0}.get(
        phase or "", number.get("g")
    )
    context = replace(_sums_of(number, "c"), req=c_req)
    generation = replace(_sums_of(number, "g"), req=g_req)
    if phase == PREFILL:
        context = context.known(sq=number.get("toks"))
    if phase == DECODE:
        # Drafts are verified in a mode of their own: here each request has one new token.
        generation = generation.known(sq=requests)
    dialect = "sglang detailed" if number.keys() - {"toks"} else "sglang"
    batch = Batch(dialect, phase, requests, context, generation)
    if phase == MIXED and _both(c_req, g_req, lambda a, b: a + b != requests):
        words = f"{requests} requests, of them {c_req} in context and {g_req} in generation"
        return Batch(dialect, phase, requests, contradiction=words)
    return batch


def _atom(found: re.Match[str]) -> Batch:
    kind, requests = found[1], int(found[2])
    padded = int(found[3]) if found[3] else None
    values = found[4]
    number = {name: int(text) for name, text in re.findall(r" (\w+)=(\d+)(?= |$)", values)}
    own = RequestSums(requests, *(number.get(name) for name in ("tok", "sk", "sqsq", "sqsk")))
    if number.get("p"):
        # Prefills ride along: the sums are of both.
        return Batch("atom", MIXED, requests, padded=padded)
    listed = re.search(r" ctx=\[([\d, ]*)\](?= |$)", values)
    if kind == PREFILL and listed:
        keys = [int(text) for text in re.findall(r"\d+", listed[1])]
        if len(keys) == requests:
            own = own.known(sk=sum(keys))
            if own.sq == sum(keys):
                # No key was there before, so each request's new tokens are its keys.
                squares = sum(key * key for key in keys)
                own = own.known(sqsq=squares, sqsk=squares)
    none = RequestSums(0)
    both = (own, none) if kind == PREFILL else (none, own)
    return _counted("atom", *both, padded)


_SGLANG_VALUES: Final = r"(?:c|g|[cg]_(?:sq|sk|sqsq|sqsk)|toks)"
_ATOM_VALUES: Final = (
    r"(?: (?:tok|d|p|spec|sqsq|sqsk|sk)=\d{1,15}| ctx=\[[\d, ]*\](?:\.{3}\+\d{1,15})?)"
)
_EXECUTOR: Final = (
    rf"\[Executor\] _forward_step(?: \d{{1,15}})?: {_N} ctx reqs(?:, {_N} ctx tokens)?, "
    rf"{_N} gen reqs"
)
_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Batch]], ...]] = tuple(
    (re.compile(pattern, re.ASCII), read)
    for pattern, read in (
        # Cached requests may be in any phase.
        (
            rf"execute_new_{_N}_cached_{_N}",
            lambda found: Batch("vllm old", None, int(found[1]) + int(found[2])),
        ),
        (
            rf"execute_context_{_N}\({_N}\)_generation_{_N}\({_N}\)",
            lambda found: _of_requests("vllm", _numbers(found.groups())),
        ),
        # The second number is a sum of squares of nobody knows what.
        (
            rf"execute_context_{_N}\({_N}(?:_{_N})?\)_generation_{_N}\({_N}(?:_{_N})?\)",
            lambda found: _of_requests("vllm + 2nd number", _numbers(found.group(1, 2, 4, 5))),
        ),
        (rf"execute_{_N}_context_{_N}\({_SUMS}\)_generation_{_N}\({_SUMS}\)", _vllm_detailed),
        (rf"step\[([A-Z][A-Z0-9_]*) bs={_N}((?: {_SGLANG_VALUES}=\d{{1,15}})*)\]", _sglang),
        (rf"(prefill|decode)\[bs={_N}(?:/{_N})?({_ATOM_VALUES}*)\]", _atom),
        # A request in generation may have drafts, which are not named.
        (_EXECUTOR, lambda found: _of_requests("tensorrt-llm", [*_numbers(found.groups()), None])),
        (
            rf"execute_diffusion_{_N}_\d{{1,6}}x\d{{1,6}}",
            lambda found: Batch("xdit", DIFFUSION, int(found[1])),
        ),
    )
)
"""The forms of vLLM (gpu_worker.py), SGLang (build_step_span_name), ATOM, TensorRT-LLM
(py_executor.py) and xDiT."""
