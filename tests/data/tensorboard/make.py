"""Write the tables of the TensorBoard plugin for PyTorch's profiler, which the tests compare with.

Run it in an environment of its own, `pip install torch-tb-profiler==0.4.3 'setuptools<80'`:

    python make.py FOLDER TRACE... [--job NAME TRACE...]

It writes `FOLDER/NAME.json` for each trace, and one for the ranks of a job. Times are whole
nanoseconds, before the plugin rounds them for its pages; sizes are bytes.

Two things are added that the plugin's last commit has, and its release has for recordings of
2021 alone: calls of the runtime are `cuda_runtime`, too, without which no kernel has an op; and
ranges of category `user_annotation` are looked at. A third it never had: calls of the driver, which
launch kernels as those of the runtime do.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import Any

from torch_tb_profiler.profiler import trace  # type: ignore[import-not-found]
from torch_tb_profiler.profiler.data import (  # type: ignore[import-not-found]
    DistributedRunProfileData,
    RunProfileData,
)
from torch_tb_profiler.profiler.event_parser import (  # type: ignore[import-not-found]
    ProfileRole,
)
from torch_tb_profiler.profiler.loader import RunLoader  # type: ignore[import-not-found]
from torch_tb_profiler.profiler.run_generator import (  # type: ignore[import-not-found]
    RunGenerator,
)
from torch_tb_profiler.profiler.trace import (  # type: ignore[import-not-found]
    EventTypeMap,
    EventTypes,
)

ROLES = (
    "Kernel", "Memcpy", "Memset", "Communication", "Runtime", "DataLoader", "CPU Exec", "Other",
    "Total",
)  # fmt: skip


def ns(us: float) -> int:
    """Return whole nanoseconds."""
    return round(us * 1000)


def overview(data: Any, profile: Any) -> dict[str, Any]:
    """Return the times of each step by role, their mean, and what is said of the devices."""
    roles = [*list(ProfileRole)]
    steps = [[ns(each.costs[role]) for role in roles] for each in data.steps_costs]
    mean = [ns(data.avg_costs.costs[role]) for role in roles]
    devices = [RunGenerator._get_gpu_info(data.device_props, gpu) for gpu in data.used_devices]
    return {
        "roles": ROLES, "steps": data.steps_names, "times": steps, "mean": mean,
        "devices": devices, "summary": profile.gpu_summary,
    }  # fmt: skip


def of_op(op: Any) -> list[Any]:
    """Return a row of the operator view."""
    return [
        op.calls, ns(op.self_device_duration), ns(op.device_duration), ns(op.self_host_duration),
        ns(op.host_duration), op.tc_eligible, round(100 * op.tc_self_ratio, 4),
        round(100 * op.tc_total_ratio, 4),
    ]  # fmt: skip


def operators(data: Any) -> dict[str, Any]:
    """Return the operator view: by name, by name and shapes, and how many stacks each has."""
    by_input: dict[str, list[Any]] = {}
    for op in data.op_list_groupby_name_input:
        row = of_op(op)
        by_input.setdefault(op.name, []).append([row[0], row[1], row[3]])
    return {
        "name": {op.name: of_op(op) for op in data.op_list_groupby_name},
        "input": {name: sorted(rows) for name, rows in by_input.items()},
        "stacks": {name: len(aggs) for name, aggs in data.stack_lists_group_by_name.items()},
    }


def kernels(data: Any) -> dict[str, Any]:
    """Return the kernel view: by name, and by name, op and properties."""
    if data.kernel_stat is None:
        return {"name": {}, "op": []}
    by_name = {
        str(name): [
            bool(row["tc_used"]), int(row["count"]), ns(row["sum"]), ns(row["max"]),
            ns(row["min"]), round(row["blocks_per_sm"], 4), round(row["occupancy"], 4),
        ]
        for name, row in data.kernel_stat.iterrows()
    }  # fmt: skip
    names = list(by_name)
    by_op = [
        [
            names.index(each.name), each.op_name, each.grid, each.block, each.regs_per_thread,
            each.shared_memory, each.calls, ns(each.total_duration), ns(each.max_duration),
            ns(each.min_duration), round(each.avg_blocks_per_sm, 4),
            round(each.avg_occupancy, 4),
        ]
        for each in data.kernel_list_groupby_name_op
    ]  # fmt: skip
    return {"name": by_name, "op": by_op}


def memory(data: Any, profile: Any) -> dict[str, Any] | None:
    """Return the memory view: statistics by op over all and over a half, and the events."""
    if data.memory_snapshot is None:
        return None
    profile.gpu_infos = {}
    first, last = (data.memory_snapshot.memory_records[at].ts for at in (0, -1))
    middle = (first + last) / 2
    try:
        events = profile.get_memory_events(time_metric="us", memory_metric="B")["rows"]
    except TypeError:  # it knows no devices but CPUs and NVIDIA's
        events = {}
    return {
        "middle": ns(middle),
        "all": data.memory_snapshot.get_memory_statistics(data.tid2tree),
        "second_half": data.memory_snapshot.get_memory_statistics(data.tid2tree, start_ts=middle),
        "event_counts": {
            device: [len(rows), sum(row[2] is not None and row[3] is not None for row in rows)]
            for device, rows in events.items()
        },
        "events": {
            device: [
                [row[0], *map(round, row[1:2]), *(None if v is None else ns(v) for v in row[2:])]
                for row in rows[:200]
            ]
            for device, rows in events.items()
        },
        "start": ns(data.profiler_start_ts),
    }


def modules(stats: Any, path: str = "") -> list[list[Any]]:
    """Return the module view, each module by the names that lead to it."""
    rows = []
    for each in stats or ():
        name = f"{path}.{each.name}" if path else each.name
        rows.append([
            name, each.occurences, each.operators, ns(each.host_duration),
            ns(each.self_host_duration), ns(each.device_duration), ns(each.self_device_duration),
        ])  # fmt: skip
        rows.extend(modules(each.children, name))
    return rows


def job(profiles: list[Any]) -> dict[str, Any] | None:
    """Return the distributed view of the ranks of a job."""
    loader = RunLoader("job", ".", None)
    found = loader._process_distributed_profiles(profiles, None)
    if found is None:
        return None
    rows = {worker: table["rows"] for worker, table in found.comm_ops["data"].items()}
    return {
        "ops": {
            worker: {row[0]: [row[1], row[2], ns(row[4]), ns(row[6])] for row in each}
            for worker, each in rows.items()
        },
        "overlap": found.steps_to_overlap["data"],
        "wait": found.steps_to_wait["data"],
    }


def read(path: str, worker: str) -> Any:
    """Return what the plugin makes of a trace."""
    return RunProfileData.parse(worker, None, path, "/tmp")  # noqa: S108 - only where it repairs


def main() -> None:
    """Write the tables."""
    logging.disable(logging.CRITICAL)
    EventTypeMap["cuda_runtime"] = EventTypeMap["cuda_driver"] = EventTypes.RUNTIME
    del EventTypeMap["gpu_user_annotation"]
    create = trace.create_trace_event

    def with_annotations(event: Any, is_lightning: bool) -> Any:  # noqa: FBT001 - its signature
        found = create(event, is_lightning)
        if found is None and event.get("cat", "").lower() == "user_annotation":
            return trace.OperatorEvent(EventTypes.USER_ANNOTATION, event)
        return found

    trace.create_trace_event = with_annotations
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("traces", nargs="*")
    parser.add_argument("--job", nargs="+", metavar=("NAME", "TRACE"), action="append", default=[])
    args = parser.parse_args()
    found: dict[str, Any] = {}
    for path in args.traces:
        data = read(path, "worker")
        profile = RunGenerator("worker", None, data).generate_run_profile()
        alone = job([DistributedRunProfileData(data)])
        found[Path(path).name.split(".")[0]] = {
            "overview": overview(data, profile), "operator": operators(data),
            "kernel": kernels(data), "memory": memory(data, profile),
            "module": modules(profile.module_stats), "distributed": alone,
        }  # fmt: skip
    for name, *paths in args.job:
        ranks = [read(path, f"rank{at}") for at, path in enumerate(paths)]
        found[name] = {"distributed": job([DistributedRunProfileData(each) for each in ranks])}
    for name, tables in found.items():
        (args.folder / f"{name}.json").write_text(json.dumps(tables, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
