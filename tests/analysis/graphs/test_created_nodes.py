"""Ids of nodes lead back to where each was captured, or to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyprof2.analysis.graphs.created_nodes import CreatedNodes
from pyprof2.analysis.linking.threads import NO_ID
from tests.kineto_events import rows
from tests.nsight_exports import MAIN, PID, Export, global_pid, global_tid

if TYPE_CHECKING:
    from pathlib import Path

CREATED = CreatedNodes(
    pid=np.array([1] * 10 + [2]),
    # A node, its copy, a copy of the copy; a circle; an id twice; a copy of what is not there.
    node_id=np.array([10, 20, 30, 40, 50, 60, 60, 70, 80, 90, 10]),
    original_id=np.array([NO_ID, 10, 20, 50, 40, NO_ID, NO_ID, 999, 80, 60, NO_ID]),
    row=np.arange(11),
)


def test_copies_lead_to_their_original_in_their_process() -> None:
    found = CREATED.originals(np.array([1, 1, 1, 2]), np.array([10, 20, 30, 10]))

    assert found.tolist() == [0, 0, 0, 10]


def test_what_leads_nowhere_is_not_known() -> None:
    nowhere = np.array([40, 50, 60, 70, 80, 90, 12345, NO_ID, 20])

    assert CREATED.originals(np.array([1] * 8 + [2]), nowhere).tolist() == [-1] * 9


def test_a_replay_recorded_by_nsight_has_the_ops_around_the_creation_of_its_nodes(
    tmp_path: Path,
) -> None:
    export = Export()
    for place, name in enumerate(("aten::mm", "aten::relu")):
        begin = 100 * place
        export.range(f"{name}, seq = {place + 1}", begin, begin + 50)
        export.call("cudaLaunchKernel", begin + 10, 20, 900 + place)
        thread = global_tid(PID, MAIN)
        export.add(
            "CUDA_GRAPH_NODE_EVENTS", start=begin + 15, end=begin + 16, globalTid=thread,
            nameId=None, graphNodeId=10 + place, originalGraphNodeId=None,
        )  # fmt: skip
        for copy, of in ((20, 10), (30, 20)):
            export.add(
                "CUDA_GRAPH_NODE_EVENTS", start=500 + place, end=501 + place, globalTid=thread,
                nameId=None, graphNodeId=copy + place, originalGraphNodeId=of + place,
            )  # fmt: skip
    for number, nodes in enumerate(((30, 31), (21, 20), (77, 31))):
        begin = 1000 + 500 * number
        export.call("cudaGraphLaunch_v10000", begin, 20, 50 + number)
        for place, node in enumerate(nodes):
            export.kernel(
                f"k{place}", begin + 100 + 50 * place, 10, 50 + number, graphNodeId=node,
                globalPid=global_pid(PID),
            )  # fmt: skip

    table = export.load(tmp_path).table("kernels")

    assert rows(table, "link", "op") == [
        ("graph_id", "aten::mm"), ("graph_id", "aten::relu"),
        ("graph_id", "aten::relu"), ("graph_id", "aten::mm"),
        ("graph", None), ("graph_id", "aten::relu"),
    ]  # fmt: skip
