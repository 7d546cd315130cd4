"""An annotation's knowledge of the process: its options, ops, layers, lines and threads."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

from pyprof2.nvtx.catalog import Catalog
from pyprof2.nvtx.layers import Layers
from pyprof2.nvtx.sinks import Messages
from pyprof2.nvtx.sources import Sources, script_folder
from pyprof2.nvtx.threads import ThreadState

if TYPE_CHECKING:
    from types import FrameType

    from pyprof2.nvtx.options import Options
    from pyprof2.nvtx.sinks import Sink


class Knowledge:
    """Options, ops, layers, lines and threads, from `init` to `shutdown`.

    Attributes:
        local: `state` of each thread.
        sink: takes ranges; None: only torch.profiler does.
        messages: of the sink.
        catalog: ops, and where they are called.
        source_root: the folder of the user's own code; None: unknown.
    """

    def __init__(self, options: Options, sink: Sink | None) -> None:
        self.options = options
        self.local = threading.local()
        self.sink = sink
        self.messages = None if sink is None else Messages(sink)
        self.catalog = Catalog(options, self.messages)
        self.source_root = options.source_root or script_folder()
        self.sources = Sources(self.source_root)
        self.layers = Layers(self.catalog)
        self._peers: list[ThreadState] = []
        self._numbers = itertools.count()

    def new_state(self) -> ThreadState:
        """Make the state of the calling thread, which has none."""
        attributes = None if self.sink is None else self.sink.new_attributes()
        state = ThreadState(next(self._numbers), attributes, self.catalog.base, self._peers)
        self.local.state = state
        return state

    def state(self) -> ThreadState:
        """Return the state of the calling thread."""
        found: ThreadState | None = getattr(self.local, "state", None)
        return self.new_state() if found is None else found

    def source(self, frame: FrameType | None) -> str | None:
        """Return the lines outside of torch that the calling thread is at; None: there are none."""
        place = self.sources.place(frame, self.state().open)
        return None if place is None else place.source
