"""My agent asks why the training is slow: it finds the cause, and how that is known."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.journeys.conftest import PYPROF2

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

mcp = pytest.importorskip("mcp")
pytest.importorskip("duckdb")

RECORDING: Final = Path(__file__).parents[1] / "data" / "compiled" / "h200.json.gz"


async def conversation(folder: Path) -> list[dict[str, Any]]:
    server = mcp.StdioServerParameters(
        command=str(PYPROF2), args=["mcp", str(folder)], env=dict(os.environ)
    )
    answers: list[dict[str, Any]] = []

    async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        answers.append(json.loads(result.content[0].text))
        return answers[-1]

    async with mcp.Client(server) as client:
        assert "How not to be misled" in (client.instructions or "")
        listed = await client.list_tools()
        assert len(listed.tools) == 6
        assert all(tool.annotations.read_only_hint for tool in listed.tools)
        # From here on it follows what each answer proposes.
        call = (await ask("open"))["next"][0]
        call = (await ask(call["call"], **call["arguments"]))["next"][0]
        await ask(call["call"], **call["arguments"])
        top = await ask("top", axis="kernel")
        await ask("explain", id=top["next"][0]["arguments"]["id"])
    return answers


@pytest.mark.slow
def test_an_agent_finds_out_why_and_what_it_rests_on(walk: Walk) -> None:
    (walk.folder / "traces").mkdir()
    (walk.folder / "traces" / "net.json.gz").write_bytes(RECORDING.read_bytes())

    listed, _, overview, top, why = asyncio.run(conversation(walk.folder / "traces"))

    assert listed["data"]["recordings"] == ["net.json.gz"]
    assert "97 % idle" in overview["data"]["says"]
    assert overview["data"]["findings"][0]["rule"] == "host-bound"
    assert top["data"]["rows"][0]["op"] == "aten::_foreach_lerp_"
    assert "correlation id" in json.dumps(why["data"]["says"]["link"])


def test_the_skill_is_printed_and_the_server_says_what_it_lacks(walk: Walk) -> None:
    skill = walk.text("mcp", "--skill")

    assert skill.startswith("---\nname: pyprof2\n")
    assert len(skill.splitlines()) <= 150
    assert "name the folders" in walk.run("pyprof2", "mcp", code=2).stderr
    assert "no folder" in walk.run("pyprof2", "mcp", "nowhere", code=1).stderr
