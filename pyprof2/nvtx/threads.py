"""The state of each thread: where it is, and what its autograd nodes belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyprof2.markers import pack_payload
from pyprof2.nvtx.internals import NO_TASK, current_task, next_sequence_nr
from pyprof2.nvtx.sources import CallRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyprof2.nvtx.calls import ForwardOp
    from pyprof2.nvtx.catalog import OpScope
    from pyprof2.nvtx.sinks import Attributes

UNKNOWN_NR: Final = -1
"""Stands for the next number of a thread that was not watched for a while."""


PEERS_AT_MOST: Final = 64
"""Threads whose nodes are remembered; they outlive the threads, as graphs do."""


class OpenRange(CallRange):
    """A range that is open.

    Attributes:
        token: what closes it.
        outer: where the thread was before.
        outer_task: the run of backward in which that began.
        end: how to end it; None: it is not written.
    """

    __slots__ = ("end", "outer", "outer_task", "token")

    def __init__(
        self,
        token: int,
        outer: OpScope,
        outer_task: int,
        end: Callable[[], object] | None,
        frame: int,
    ) -> None:
        super().__init__(frame)
        self.token = token
        self.outer = outer
        self.outer_task = outer_task
        self.end = end


class ThreadState:
    """The state of one thread. That thread alone writes it, save `next_nr`.

    Attributes:
        payload_base: what is added to a sequence number of this thread to make a payload.
        attributes: of the ranges it pushes; None where nothing is pushed.
        scope: where it is.
        task: the run of backward in which that scope began; `NO_TASK` outside of backward.
        open: its open ranges, the innermost last.
        next_nr: the sequence number that its next node gets, when it was last looked at.
        nodes: what the nodes that it made belong to, by sequence number.
        aliases: for a node that is not the last one of its op, the number of that.
        last_forward: the last op that made a node.
        last_backward: what the node that ran last on this thread belongs to.
        transforms: whether modules were called inside transforms of torch.func.
        is_alone: whether a number of a node means one of this thread and no other op.
        unsure: a node that was found before that of a clone; it may be the next op's.
        peers: all threads that made nodes.
        function: the scope of an autograd function whose forward runs, if one does: its node
            was made before the ops in it.
    """

    __slots__ = (
        "aliases", "attributes", "function", "is_alone", "last_backward", "last_forward", "next_nr",
        "nodes", "open", "payload_base", "peers", "scope", "task", "transforms", "unsure",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        attributes: Attributes | None,
        scope: OpScope,
        peers: list[ThreadState],
    ) -> None:
        self.payload_base = pack_payload(0, number)
        self.attributes: Any = attributes
        self.scope = scope
        self.task = NO_TASK
        self.open: list[OpenRange] = []
        self.next_nr = next_sequence_nr()
        self.nodes: dict[int, ForwardOp] = {}
        self.aliases: dict[int, int] = {}
        self.last_forward: ForwardOp | None = None
        self.last_backward: ForwardOp | None = None
        self.transforms = False
        self.is_alone = True
        self.unsure: int | None = None
        self.peers = peers
        self.function: OpScope | None = None

    def enter(
        self,
        token: int,
        scope: OpScope | None,
        end: Callable[[], object] | None,
        frame: int = 0,
    ) -> None:
        """Go into a scope, or stay in this one, until `leave` is called with the same token."""
        self.open.append(OpenRange(token, self.scope, self.task, end, frame))
        if scope is not None:
            self.scope, self.task = scope, current_task()

    def leave(self, token: int) -> None:
        """Come out of a scope, and of those inside it that are still open."""
        if not any(item.token == token for item in reversed(self.open)):
            return
        while True:
            item = self.open.pop()
            self.scope, self.task = item.outer, item.outer_task
            if item.end is not None:
                item.end()
            if item.token == token:
                return

    def join_peers(self) -> None:
        """Become known to other threads, in which nodes of this one may run."""
        self.peers.append(self)
        for peer in self.peers if len(self.peers) > 1 else ():
            peer.is_alone = False
        if len(self.peers) > PEERS_AT_MOST:
            # A copy: another thread may be looking.
            self.peers[:] = self.peers[1:]

    def note_transform(self) -> None:
        """Note that a transform of torch.func breaks up ops."""
        self.transforms, self.is_alone = True, False
