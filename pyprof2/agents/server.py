"""The server of agents: the six tools, by the Model Context Protocol, over stdin and stdout."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from pyprof2 import __version__
from pyprof2.errors import Pyprof2Error
from pyprof2.reports import files

if TYPE_CHECKING:
    from pyprof2.agents.answers import AgentTools
    from pyprof2.agents.folders import Folders

_READS: Final = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)


class Tools:
    """The tools as a client calls them: what they take and give, as their docstrings say, is text.

    The SDK calls them in threads; recordings are read by one at a time.
    """

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._lock = threading.Lock()

    @cached_property
    def _agent_tools(self) -> AgentTools:
        # Imported late: a client waits for the first word of a server for 10 s, and takes it for an
        # older one after that.
        from pyprof2.agents.answers import AgentTools

        return AgentTools(self._folders)

    def close(self) -> None:
        """Delete what was written to read recordings."""
        self._agent_tools.close()

    def open(self, trace: str = "") -> str:
        """Open a recording or store by its name in the folders of this server, and return its id.

        Without a name: list what can be opened. The ids (t1, t2, …) are for all other tools.
        """
        return self._said("open", trace)

    def overview(self, trace: str = "") -> str:
        """Say where the time of a recording went: first call after `open`.

        A sentence, step time and utilization, idle time by cause, findings with the time at stake,
        the top ops. `trace` is an id; without one the recording that was opened last.
        """
        return self._said("overview", trace)

    def top(
        self,
        axis: str = "op",
        filter: dict[str, Any] | None = None,  # noqa: A002 - the name in the tool's interface
        columns: list[str] | None = None,
        trace: str = "",
        skip: int = 0,
    ) -> str:
        """Return the rows with the most time along an axis, each with an id for `explain`.

        `axis`: kernel (each one), name, op, signature, layer, source, library, stack, range,
        direction, step, device, stream, rank, category, tensor_core, or several with commas;
        idle:cause, idle:cause,source; memory:category, memory:layer; ranks; findings; lacks.
        `filter`: an object with rank, step ("2" or "2:5"), layer, op, kernel, range (text in it;
        a|b: either), direction, category, device, stream (lists), copies (false: without them).
        `columns`: only these. `skip`: how many rows to leave out at the start.
        """
        return self._said("top", axis, filter, columns or (), trace, skip)

    def explain(self, id: str) -> str:  # noqa: A002 - the name in the tool's interface
        """Say all that is known of one kernel or op and what each number rests on.

        `id` as the rows of `top` have it, such as t1/rank0/kernel:7 or t1/rank0/op:7.
        """
        return self._said("explain", id)

    def compare(self, a: str, b: str) -> str:
        """Say what makes the steps of recording b slower or faster than those of a (two ids).

        The terms add up to the difference exactly. Other models or devices are not compared.
        """
        return self._said("compare", a, b)

    def sql(self, query: str, trace: str = "") -> str:
        """Return the rows of one SELECT (DuckDB) over the tables of a recording.

        Where no other tool fits. `DESCRIBE kernels` names columns; times are ns. 100 rows, 10 s.
        """
        return self._said("sql", query, trace)

    def _said(self, tool: str, *arguments: Any) -> str:
        with self._lock:
            try:
                answer: dict[str, Any] = getattr(self._agent_tools, tool)(*arguments)
                return files.json_text(answer)
            except (Pyprof2Error, OSError) as error:
                raise ToolError(str(error)) from error


def serve(folders: Folders, skill: str) -> None:
    """Answer until the client goes.

    Args:
        folders: where recordings may lie.
        skill: how to use the tools, for the client's model to read.
    """
    tools = Tools(folders)
    server: MCPServer = MCPServer(
        "pyprof2", instructions=skill, version=__version__, log_level="ERROR"
    )
    for tool in (tools.open, tools.overview, tools.top, tools.explain, tools.compare, tools.sql):
        server.add_tool(tool, annotations=_READS, structured_output=False)
    try:
        server.run()
    finally:
        tools.close()
