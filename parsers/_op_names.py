"""Which names in a recording are those of ops: PyTorch records ranges of its own like ops."""

from __future__ import annotations

import re
from typing import Final

NODE_PREFIX: Final = "autograd::engine::evaluate_function: "
REGION_PREFIX: Final = "Torch-Compiled Region: "
"""A call of what torch.compile compiled: the op that its kernels have, where they have no other."""

_UNQUALIFIED: Final = re.compile(
    r"detach_?|_grad_sum_to_size|record_param_comms|(?:nccl|gloo|mpi|ucc|xccl):\w+|triton_\w+"
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
