"""The rules of idle time as plain loops over nanoseconds, to hold the fast ones against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Row = Mapping[str, Any]

CLASSES = {
    "cudaStreamSynchronize": "sync",
    "cudaMalloc": "allocator",
    "cudaMemcpyAsync": "copy_call",
    "cudaLaunchKernel": "launch_call",
    "cuModuleLoad": "module_load",
    "cudaStreamWaitEvent": "runtime_call",
}


class Instant(NamedTuple):
    """What is to be said of a nanosecond."""

    cause: str
    note: str | None = None
    thread: str | None = None
    call: str | None = None
    op: str | None = None
    drained: bool = False


def end(row: Row) -> int:
    """Return when an event ended."""
    return int(row["start_ns"] + row["dur_ns"])


def holds(row: Row, instant: int) -> bool:
    """Whether an event holds a nanosecond."""
    return bool(row["start_ns"] <= instant < end(row))


def innermost(rows: Iterable[Row], key: str) -> Row | None:
    """Return what begins last; of these the shortest; of these the last."""
    return max(rows, key=lambda r: (r["start_ns"], -r["dur_ns"], r[key]), default=None)


class SlowIdle:
    """The rules, for one recording of lists of rows."""

    def __init__(self, tables: Mapping[str, Sequence[Row]], normal_ns: int) -> None:
        self.normal_ns = normal_ns
        self.calls, self.ops = tables["launches"], tables["ops"]
        self.ranges, self.stalls = tables["ranges"], tables["stalls"]
        self.trace = tables["trace"][0]
        self.work = [*tables["kernels"], *tables["copies"]]
        self.copies = {row["kernel_id"] for row in tables["copies"]}
        self.call_of = {row["launch_id"]: row for row in self.calls}
        self.launching = {row["launch_id"] for row in self.work} & set(self.call_of)

    def launch(self, work: Row) -> Row | None:
        """Return the call that launched some work, if it was recorded."""
        return self.call_of.get(work["launch_id"])

    def window(self, device: int) -> tuple[int, int]:
        """Return when the recording begins and ends."""
        work = [w for w in self.work if w["device"] == device]
        begin = min(self.trace["start_ns"], *(w["start_ns"] for w in work))
        return begin, max(self.trace["end_ns"], *map(end, work))

    def instants(self, device: int) -> dict[int, Instant]:
        """Return what is to be said of each idle nanosecond of a device."""
        work = [w for w in self.work if w["device"] == device]
        begin, finish = self.window(device)
        # A piece of work of no length ends a gap, and the next one begins there.
        points = {w["start_ns"] for w in work} | {begin, finish}
        idle = [t for t in range(begin, finish) if not any(holds(w, t) for w in work)]
        found: dict[int, Instant] = {}
        gap: list[int] = []
        for t in idle:
            if gap and (t != gap[-1] + 1 or t in points):
                found |= self.gap(work, gap[0], gap[-1] + 1, first=gap[0] == begin)
                gap = []
            gap.append(t)
        if gap:
            found |= self.gap(work, gap[0], gap[-1] + 1, first=gap[0] == begin)
        return found

    def gap(self, work: Sequence[Row], g0: int, g1: int, *, first: bool) -> dict[int, Instant]:
        """Return what is to be said of each nanosecond of a gap."""
        # Work of no length at the very beginning came before the gap.
        first = first and not any(end(w) <= g0 for w in work)
        following = [w for w in work if w["start_ns"] == g1]
        if not following:
            return self.last_gap(work, g0, g1)
        n = min(following, key=self.succession)
        launch = self.launch(n)
        if launch is None:
            pending = self.unlaunched(work, n, g0, g1, first=first)
            return dict.fromkeys(range(g0, g1), pending)
        l0, l1 = launch["start_ns"], end(launch)
        found = {}
        for t in range(g0, g1):
            if t < l0:
                found[t] = self.host(t, g0, min(l0, g1), launch, last=False)
            elif t < l1:
                found[t] = self.call(t, n, launch)
            else:
                found[t] = self.pending(work, n, launch, g0, g1, first=first)
        if l0 > g1:
            late = "the launch was recorded as later than its start"
            hosts = {t for t, i in found.items() if i.cause not in ("start", "end", "profiler")}
            found |= {t: found[t]._replace(note=found[t].note or late) for t in hosts}
        return found

    def succession(self, work: Row) -> tuple[float, int, int]:
        """Return the key by which one of several that start together is the next one."""
        launch = self.launch(work)
        begun = float("inf") if launch is None else launch["start_ns"]
        return begun, work["stream"], work["kernel_id"]

    def order(self, work: Row) -> tuple[Any, ...]:
        """Return the key that puts work in order of time."""
        return (work["start_ns"], *self.succession(work))

    def on_stream(self, work: Sequence[Row], n: Row, *, later: bool) -> list[Row]:
        """Return the work before or after some work on its stream."""
        mine = [w for w in work if w["stream"] == n["stream"] and w is not n]
        return [w for w in mine if (self.order(w) > self.order(n)) == later]

    def unlaunched(self, work: Sequence[Row], n: Row, g0: int, g1: int, *, first: bool) -> Instant:
        """Rules a and b."""
        later = [self.launch(w) for w in self.on_stream(work, n, later=True)]
        behind = any(c is not None and c["start_ns"] <= g0 for c in later)
        if not behind or g1 - g0 > self.normal_ns:
            return Instant("unknown", "no launch recorded", op=self.op_name(n["op_id"]))
        return self.queued(work, n, g0, g1, None, first=first)

    def pending(
        self, work: Sequence[Row], n: Row, launch: Row, g0: int, g1: int, *, first: bool
    ) -> Instant:
        """Rule c, else the others."""
        if (end(launch) > g0 or first) and g1 - max(g0, end(launch)) <= self.normal_ns:
            return Instant("launch_latency", op=self.op_name(n["op_id"]))
        if end(launch) > g0 or first:
            return self.stuck(work, n, launch)
        return self.queued(work, n, g0, g1, launch, first=first)

    def queued(
        self, work: Sequence[Row], n: Row, g0: int, g1: int, launch: Row | None, *, first: bool
    ) -> Instant:
        """Rules d and e, else f."""
        op = self.op_name(n["op_id"])
        if first:
            if launch is None and g1 - g0 <= self.normal_ns:
                return Instant("launch_latency", op=op)
            return self.stuck(work, n, launch)
        before = [end(w) for w in self.on_stream(work, n, later=False)]
        if g0 not in before:
            return Instant("stream_wait", op=op)
        if g1 - g0 <= self.normal_ns:
            return Instant("kernel_gap", op=op)
        return self.stuck(work, n, launch)

    def stuck(self, work: Sequence[Row], n: Row, launch: Row | None) -> Instant:
        """Rule f."""
        op = self.op_name(n["op_id"])
        note = "queued or launched, and did not start"
        if launch is None:
            return Instant("unknown", note, op=op)
        l0 = launch["start_ns"]
        before = [self.launch(w) for w in self.on_stream(work, n, later=False)]
        previous = max((c["start_ns"] for c in before if c is not None), default=-1)
        place = (n["device"], n["stream"])
        for s in self.stalls:
            here = s["kind"] == "stream_wait" and (s["device"], s["stream"]) == place
            if here and previous <= s["start_ns"] <= l0:
                return Instant("stream_wait", op=op)
        mine = [c for c in self.calls if c["tid"] == launch["tid"] and c["pid"] == launch["pid"]]
        launched = [c["start_ns"] for c in mine if c["launch_id"] in self.launching]
        previous = max((t for t in launched if t < l0), default=-1)
        waits = [c["start_ns"] for c in mine if "StreamWaitEvent" in c["name"]]
        if any(previous <= t <= l0 for t in waits):
            note = "a wait call precedes the launch"
        return Instant("unknown", note, op=op)

    def call(self, t: int, n: Row, launch: Row) -> Instant:
        """The host is in the call that hands the next one over."""
        cause = "launch_call"
        if n["kernel_id"] in self.copies:
            cause = "copy_call"
        elif self.stalled("module_load", launch, t):
            cause = "module_load"
        op = self.op_name(n["op_id"])
        return Instant(cause, thread="launching", call=launch["name"], op=op)

    def stalled(self, kind: str, thread: Row, t: int) -> bool:
        """Whether a stall holds a thread, or all of them, up."""
        mine = [s for s in self.stalls if s["kind"] == kind and holds(s, t)]
        return any(
            s["tid"] is None or (s["pid"], s["tid"]) == (thread["pid"], thread["tid"]) for s in mine
        )

    def last_gap(self, work: Sequence[Row], g0: int, g1: int) -> dict[int, Instant]:
        """Return what is to be said of the gap at the end."""
        launched = [w for w in work if self.launch(w) is not None]
        if not launched:
            return dict.fromkeys(range(g0, g1), Instant("unknown", "no launch recorded"))
        latest = max(launched, key=lambda w: (self.call_of[w["launch_id"]]["start_ns"],
                                              [-k for k in self.order(w)]))  # fmt: skip
        thread = self.call_of[latest["launch_id"]]
        return {t: self.host(t, g0, g1, thread, last=True) for t in range(g0, g1)}

    def host(self, t: int, g0: int, h1: int, thread: Row, *, last: bool) -> Instant:
        """Rules g to l."""
        mine = [c for c in self.calls if c["pid"] == thread["pid"]]
        loader = "enumerate(DataLoader)#"
        marks = [*mine, *(o for o in self.ops if o["pid"] == thread["pid"])]
        marks += [
            r for r in self.ranges
            if r["pid"] == thread["pid"] and (r["kind"] == "step" or r["name"].startswith(loader))
        ]  # fmt: skip
        if t < min(m["start_ns"] for m in marks):
            return Instant("start")
        if last and t >= max(map(end, marks)):
            return Instant("end")
        if self.stalled("profiler", thread, t):
            return Instant("profiler", thread="launching")
        drained = None if last else self.drained(t, g0, h1, thread, mine)
        return drained or self.by_thread(t, g0, thread, mine)

    def drained(
        self, t: int, g0: int, h1: int, thread: Row, calls: Sequence[Row]
    ) -> Instant | None:
        """Rule i."""
        blocking = [
            c for c in calls
            if CLASSES[c["name"]] in ("sync", "allocator", "copy_call")
            and c["start_ns"] < g0 <= end(c)
        ]  # fmt: skip
        own = [c for c in blocking if c["tid"] == thread["tid"]]
        b = innermost(own or blocking, "launch_id")
        if b is None or t >= min(g0 + b["dur_ns"], h1):
            return None
        who = "launching" if b["tid"] == thread["tid"] else "other"
        op = self.op_name(b["op_id"])
        return Instant(CLASSES[b["name"]], thread=who, call=b["name"], op=op, drained=True)

    def by_thread(self, t: int, g0: int, thread: Row, calls: Sequence[Row]) -> Instant:
        """Rules j to l."""
        found = self.state(t, thread["pid"], thread["tid"])
        if found is not None:
            return found._replace(thread="launching")
        before = [c for c in calls if c["start_ns"] < g0 and c["launch_id"] in self.launching]
        latest = max(before, key=lambda c: (c["start_ns"], c["launch_id"]), default=None)
        rows = [*self.calls, *self.ops, *self.ranges]
        tids = sorted({r["tid"] for r in rows if r["pid"] == thread["pid"]})
        for tid in ([] if latest is None else [latest["tid"]]) + tids:
            found = self.state(t, thread["pid"], tid)
            if found is not None:
                return found._replace(thread="other")
        return Instant("host_unrecorded", "to see it, record Python stacks")

    def state(self, t: int, pid: int, tid: int) -> Instant | None:
        """Rule j for one thread."""

        def mine(rows: Sequence[Row], keep: Callable[[Row], bool] = bool) -> list[Row]:
            own = [r for r in rows if (r["pid"], r["tid"]) == (pid, tid)]
            return [r for r in own if holds(r, t) and keep(r)]

        op = innermost(mine(self.ops), "op_id")
        name = None if op is None else op["op"]
        call = innermost(mine(self.calls), "launch_id")
        if call is not None:
            return Instant(CLASSES[call["name"]], call=call["name"], op=name)
        if mine(self.ranges, lambda r: r["name"].startswith(("enumerate(DataLoader)#", "data "))):
            return Instant("data_loading", op=name)
        if name is not None:
            return Instant("host_comm" if name.startswith("c10d::") else "host_op", op=name)
        if mine(self.ranges, lambda r: r["kind"] == "annotation"):
            return Instant("host_python")
        return None

    def op_name(self, op_id: int | None) -> str | None:
        """Return the name of an op."""
        return next((o["op"] for o in self.ops if o["op_id"] == op_id), None)
