"""What a process that runs an entry point says of itself, in a file of JSON."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Facts:
    """What a run of an entry point says of itself.

    Attributes:
        batch_size: samples in an iteration.
        default_batch_size: what the input provider says.
        prefix: `skyline` or `deepview`.
        on_cpu: the line that first asked for a GPU, where the CPU took its place; None: nothing
            did, or a GPU was there.
        threads: that share the work of an op on the CPU.
        used_gpu: whether the program used one.
        wall_ns, cpu_ns: of each iteration that was timed: time, and time that the process worked.
        waits: how often the process let go of the CPU in it, to wait for something.
        error: what went wrong, `file:line: …`; None: nothing.
        out_of_memory: whether it was for lack of memory.
    """

    batch_size: int = 0
    default_batch_size: int = 0
    prefix: str = ""
    on_cpu: str | None = None
    threads: int = 0
    used_gpu: bool = False
    wall_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    error: str | None = None
    out_of_memory: bool = False
