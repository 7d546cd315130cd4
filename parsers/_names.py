"""Names in recordings: how long they may be, and what they say of ops, copies and stalls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.problems import NAME_CUT, PATH_CUT, STACK_CUT

if TYPE_CHECKING:
    from collections import Counter

NAME_MAX: Final = 1 << 14
"""Characters of a name that are kept."""
STACK_MAX: Final = 1 << 16
"""Characters of a call stack that are kept."""
_MARKERS: Final = ('{"pyprof2":', "{'pyprof2':", "{'mod':", '{"mod":')
"""Markers are no names: a cut one says nothing, and their readers have limits of their own."""


def cut_name(name: str, problems: Counter[str]) -> str:
    """Return a name that is not too long; what is cut is counted."""
    if len(name) <= NAME_MAX or name.startswith(_MARKERS):
        return name
    problems[NAME_CUT] += 1
    return name[:NAME_MAX]


def cut_names(names: pa.StringArray, problems: Counter[str]) -> pa.StringArray:
    """Return names that are not too long; what is cut is counted."""
    if (pc.max(pc.binary_length(names)).as_py() or 0) <= NAME_MAX:
        return names
    return pa.array([text and cut_name(text, problems) for text in names.to_pylist()], pa.string())


def cut_stack(stack: str, problems: Counter[str]) -> str:
    """Return the innermost frames of a stack, which come first; if some are cut, it is counted."""
    if len(stack) <= STACK_MAX:
        return stack
    problems[STACK_CUT] += 1
    return _whole_parts(stack, ";", STACK_MAX)


def cut_path(path: str, problems: Counter[str]) -> str:
    """Return the outermost modules of a path, which come first; if some are cut, it is counted."""
    if len(path) <= NAME_MAX:
        return path
    problems[PATH_CUT] += 1
    return _whole_parts(path, ".", NAME_MAX)


def _whole_parts(text: str, separator: str, most: int) -> str:
    """Return the parts that fit as a whole: a cut one would be the name of something else."""
    return text[: most + 1].rpartition(separator)[0]


NODE_PREFIX: Final = "autograd::engine::evaluate_function: "
REGION_PREFIX: Final = "Torch-Compiled Region: "
"""A call of what torch.compile compiled: the op that its kernels have, where they have no other."""

_UNQUALIFIED: Final = re.compile(
    r"detach_?|_grad_sum_to_size|record_param_comms|(?:nccl|gloo|mpi|ucc|xccl):\w+|triton_\w+"
    r"|graph_\d+_cpp_\w+"
    rf"|{REGION_PREFIX}.*"
)
_NODE_NAME: Final = re.compile(r"\w+Backward\d*")

# Around the Python code that handles an op: the op itself is inside, or around it.
_DISPATCH: Final = frozenset(("PythonDispatchMode", "PythonSubclass"))


def is_unqualified_op(name: str) -> bool:
    """Whether a name without a namespace is an op's all the same."""
    return bool(_UNQUALIFIED.fullmatch(name))


def is_dispatch(name: str) -> bool:
    """Whether a range is around the code of a mode or of a tensor subclass, with an op's inputs."""
    return name in _DISPATCH


def is_named_like_op(name: str) -> bool:
    """Whether a name alone says that it is an op's; those of nodes and functions may not."""
    return "::" in name or is_unqualified_op(name) or bool(_NODE_NAME.fullmatch(name))


COPY_KINDS: Final = {
    "HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d", "HtoH": "h2h", "PtoP": "p2p",
    "HtoA": "h2d", "AtoH": "d2h", "AtoA": "d2d", "AtoD": "d2d", "DtoA": "d2d",
}  # fmt: skip
"""Kinds of copies, by the words of NVIDIA's and AMD's recorders; arrays are on the device."""

PROFILER: Final = "profiler"
OTHER: Final = "other"
SYNC: Final = "sync"
STREAM_WAIT: Final = "stream_wait"
DEVICE_WAIT: Final = "device_wait"
STREAM_WAIT_NAME: Final = "Stream Wait Event"

_WORDS: Final = {
    "module_load": r"module loading|function loading|driver (?:jit )?compiler",
    "queue_full": r"command buffer full",
    PROFILER: r"flush|instrumentation|resource|activity buffer request|profiling",
}
_KINDS: Final = {kind: re.compile(words, re.IGNORECASE) for kind, words in _WORDS.items()}


def overhead_kind(name: str, otherwise: str = OTHER) -> str:
    """Return the kind of an overhead; `otherwise` if its name says none."""
    return next((kind for kind, words in _KINDS.items() if words.search(name)), otherwise)


def wait_kind(name: str) -> str:
    """Return the kind of a wait: of a stream for an event of another one, or of the host."""
    return STREAM_WAIT if name == STREAM_WAIT_NAME else SYNC
