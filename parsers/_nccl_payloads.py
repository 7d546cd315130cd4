"""The calls that NCCL's own NVTX ranges describe in their payloads, as JSON.

A range as `ncclAllReduce` has the communicator and how many bytes one rank gives or gets; a range
as `ncclCommInitRank`, which was before it, how many ranks the communicator has.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from pyprof2.parsers._json import DECODE_ERRORS
from pyprof2.recording import Signature
from pyprof2.signatures import Scalar, format_inputs

_CALL: Final = re.compile(
    r"p?nccl(AllReduce|AllGather|ReduceScatter|AllToAll|Broadcast|Bcast|Reduce|Send|Recv)",
    re.IGNORECASE,
)
_COMMUNICATOR: Final = "NCCL communicator ID"
_BYTES: Final = "Message size [bytes]"
_RANKS: Final = "No. of ranks"
_MORE: Final = {"Root": "root", "Peer rank": "peer", "Peer": "peer"}
_ALL_RANKS: Final = {"allgather": (1, None), "reducescatter": (None, 1), "alltoall": (None, None),
                     "send": (1, 0), "recv": (0, 1)}  # fmt: skip
"""How many messages go in and come out, None: one for each rank; of other collectives one each."""


class NcclCalls:
    """Reads the payloads of one process; communicators are known from their first range on."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def signature(self, name: str, text: str) -> Signature | None:
        """Return the call that a range describes; None where it describes no collective.

        Args:
            name: of the range.
            text: its payload.
        """
        try:
            said = msgspec.json.decode(text)
        except DECODE_ERRORS:
            return None
        if not isinstance(said, dict) or _COMMUNICATOR not in said:
            return None
        group, ranks = str(said[_COMMUNICATOR]), said.get(_RANKS)
        if isinstance(ranks, int) and ranks > 0:
            self._sizes[group] = ranks
        found, size = _CALL.fullmatch(name), said.get(_BYTES)
        if found is None or not isinstance(size, int) or size < 0:
            return None
        kind, count = found[1].lower(), self._sizes.get(group)
        counts = [count if n is None else n for n in _ALL_RANKS.get(kind, (1, 1))]
        into, out = (None if n is None else n * size for n in counts)
        call: dict[str, Any] = {
            "collective": kind, "in_bytes": into, "out_bytes": out, "group_size": count,
            "group_name": group,
        }  # fmt: skip
        call |= {key: said[word] for word, key in _MORE.items() if isinstance(said.get(word), int)}
        return Signature(name, f"{name}()", format_inputs((Scalar(call),)), has_shapes=False)
