"""The category of a block, from the phases in which it was allocated and released.

Phases and the ends of steps come from the recording: autograd's nodes, the ranges of
optimizers, step ranges; in a snapshot from frames. A rule that does not fit gives `unknown`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.columns import lookup

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.columns import TextColumn

CATEGORIES: Final = (
    "parameter", "buffer", "gradient", "optimizer_state", "activation", "input", "temporary",
    "workspace", "communication", "output", "unknown", "parameter_or_buffer",
)  # fmt: skip
"""The last is what lives from before the recording to its end: one row, not split."""
CERTAINTIES: Final = ("exact", "inferred", "none")
PHASES: Final = ("forward", "backward", "optimizer", "other", "zero_grad")

_FORWARD, _BACKWARD, _OPTIMIZER, _OTHER, _ZERO_GRAD = range(len(PHASES))
_CODE: Final = {name: code for code, name in enumerate(CATEGORIES)}
_WORKSPACE: Final = re.compile(r"cudnn|cublas|miopen|workspace", re.IGNORECASE)
_COMMUNICATION: Final = re.compile(
    r"c10d::|_c10d_functional::|nccl|gloo|record_param_comms|AllReduce|AllGather|ReduceScatter"
)


class Lives(NamedTuple):
    """When blocks live: phases as codes into `PHASES`, -1 for unknown, and numbers of steps.

    Attributes:
        began_in, began_step: at the allocation.
        ended_in, ended_step: at the release.
        never: whether there is no release.
    """

    began_in: Int
    began_step: Int
    ended_in: Int
    ended_step: Int
    never: Bool


def phase_codes(column: TextColumn) -> Int:
    """Return phases as codes into `PHASES`, -1 for unknown."""
    codes, words = column
    known = {name: code for code, name in enumerate(PHASES)}
    return lookup(np.array([known.get(w or "", -1) for w in words], np.int8), codes, -1)


def derived_steps(phase: Int) -> Int:
    """Return a number of the step of each event, where none is recorded, by its phase.

    A step begins where forward follows backward or the optimizer.
    """
    known = np.flatnonzero(phase >= 0)
    tagged = phase[known]
    begins = (tagged[1:] == _FORWARD) & np.isin(tagged[:-1], (_BACKWARD, _OPTIMIZER, _ZERO_GRAD))
    step = np.zeros(len(phase), np.int64)
    step[known[1:][begins]] = 1
    return np.cumsum(step)


def infer(lives: Lives, op: TextColumn, trained: Int) -> Int:
    """Return the category of each block as a code into `CATEGORIES`.

    Args:
        lives: of the blocks.
        op: of the blocks.
        trained: the steps that have a backward; empty: the recording is of inference.
    """
    found = np.full(len(lives.never), _CODE["unknown"])
    began, ended = lives.began_in, np.where(lives.never, -1, lives.ended_in)
    same_step = ~lives.never & (lives.began_step == lives.ended_step)
    later = lives.never | (~same_step & (lives.ended_step > lives.began_step))
    known = (began >= 0) & (lives.never | (ended >= 0))
    found[known & same_step & (began == ended)] = _CODE["temporary"]
    found[(began == _FORWARD) & (ended == _BACKWARD) & same_step] = _CODE["activation"]
    outlives = (began == _FORWARD) & later & (lives.never | (ended == _FORWARD))
    # A recording that ends between forward and backward does not show what its last forward left.
    whole = np.isin(lives.began_step, trained) if len(trained) else True
    found[outlives & whole] = _CODE["output"]
    found[(began == _BACKWARD) & (later | (ended == _ZERO_GRAD)) & known] = _CODE["gradient"]
    is_state = (began == _OPTIMIZER) & (lives.never | (later & (ended == _OPTIMIZER)))
    found[is_state] = _CODE["optimizer_state"]
    # Temporaries of libraries and of collectives are set apart, by the name of their op.
    codes, words = op
    kinds = [
        _CODE["communication"] if _COMMUNICATION.match(word or "")
        else _CODE["workspace"] if _WORKSPACE.search(word or "") else -1
        for word in words
    ]  # fmt: skip
    named = lookup(np.array(kinds, np.int64), codes, -1)
    return np.where((found == _CODE["temporary"]) & (named >= 0), named, found)


def infer_before(ended_in: Int) -> Int:
    """Return the category of blocks that were there before the recording, and were released.

    Args:
        ended_in: the phase of the release, -1 for unknown.
    """
    found = np.full(len(ended_in), _CODE["unknown"])
    found[ended_in == _ZERO_GRAD] = _CODE["gradient"]
    found[ended_in == _OPTIMIZER] = _CODE["optimizer_state"]
    return found


def trained_steps(phase: Int, step: Int) -> Int:
    """Return the steps in which there is a backward."""
    return np.unique(step[phase == _BACKWARD])
