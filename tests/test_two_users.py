"""What another user of the machine plants is neither followed nor run, and costs no file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.neighbours import NEIGHBOUR, VICTIM, closed_folder, words_for

ROOT: Final = Path(__file__).resolve().parent.parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="its namespaces are those of Linux"),
]


@pytest.fixture
def seen(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what a scene of two users saw; the name of the test is its name."""
    if os.geteuid():
        pytest.skip("only root becomes other users")
    if closed_folder(ROOT) or closed_folder(Path(sys.prefix)):
        pytest.skip("other users cannot read this folder")
    if any(Path("/tmp") in (path, *path.parents) for path in (ROOT, Path(sys.prefix))):  # noqa: S108
        pytest.skip("this checkout is in /tmp, in whose place there is an empty one")
    try_out = ["unshare", "--mount", "--net", "true"]
    if subprocess.run(try_out, check=False).returncode:
        pytest.skip("no namespaces here")
    name = request.node.name.removeprefix("test_").removesuffix("_of_another_user")
    done = subprocess.run(
        words_for(name), cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_socket_name_of_another_user(seen: dict[str, Any]) -> None:
    assert seen["folder"] == f"/tmp/pyprof2-watch-{VICTIM}"  # noqa: S108
    assert seen["said"] == "nobody asked\n"
    assert seen["listed"]["code"] == 0, seen["listed"]
    assert f"  {VICTIM}  " in seen["listed"]["out"]
    assert "dynolog" in seen["listed"]["err"]
    assert "it answers jobs without KINETO_IPC_SOCKET_DIR" in seen["listed"]["err"]


def _is_refused(seen: dict[str, Any]) -> None:
    for done in seen.values():
        assert (done["code"], done["out"]) == (1, "")
        assert "it is not this user's alone" in done["err"]
        assert done["err"].count("\n") == 1


def test_socket_folder_of_another_user(seen: dict[str, Any]) -> None:
    _is_refused(seen)


def test_socket_link_of_another_user(seen: dict[str, Any]) -> None:
    _is_refused(seen)


def test_abandoned_folders_of_another_user(seen: dict[str, Any]) -> None:
    assert seen["done"] == {"code": 0, "out": "", "err": ""}
    assert seen["kept"]
    assert seen["seconds"] < 30


def test_cache_of_another_user(seen: dict[str, Any]) -> None:
    assert seen["done"]["code"] == 0, seen["done"]
    assert seen["done"]["out"].splitlines()[1:] == ["(None, 0.0)", "_Unusable"]
    assert seen["owners"] == [NEIGHBOUR]


def test_store_of_another_user(seen: dict[str, Any]) -> None:
    assert [seen[name]["code"] for name in ("there", "forced", "new", "linked")] == [1, 1, 0, 1]
    assert seen["precious"] == "mine"
    assert ".new.pyprof2.x.partial" in seen["left"]


def test_beside_of_another_user(seen: dict[str, Any]) -> None:
    assert seen["plain"]["code"] == 0
    shared, plain = seen["shared"], seen["plain"]
    assert (shared["code"], shared["out"]) == (0, plain["out"])
    said = [line for line in shared["err"].splitlines() if line not in plain["err"].splitlines()]
    assert len(said) == 3, shared["err"]
    assert all(": not read, as its owner is not the recording's; --" in line for line in said)


def test_home_of_another_user(seen: dict[str, Any]) -> None:
    """It is the only one that a user without an entry in the list of users could have."""
    assert (seen["plain"]["code"], seen["plain"]["out"]) == (3, "128.0\n")
    for name in "captured", "init":
        assert (seen[name]["code"], seen[name]["out"]) == (3, "128.0\n"), seen[name]["err"]
    assert "there is no home folder" in seen["captured"]["err"]
