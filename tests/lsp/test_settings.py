"""What a user can set, and what an editor sends of what is not set."""

from __future__ import annotations

import json
import sys

from pyprof2.lsp.settings import Settings
from tests.conftest import ROOT


def test_an_empty_interpreter_is_that_of_the_server() -> None:
    found, wrong = Settings(python="/usr/bin/other").changed({"python": ""})

    assert (found.python, wrong) == (sys.executable, [])


def test_the_extension_offers_every_setting_with_its_default() -> None:
    known = json.loads((ROOT / "editors" / "vscode" / "package.json").read_text())
    offered = {
        name.removeprefix("pyprof2."): setting["default"]
        for name, setting in known["contributes"]["configuration"]["properties"].items()
    }
    # The one that starts the server is the extension's own; whether code may run VS Code says.
    del offered["interpreter"]
    mine = Settings()
    names = {name: getattr(mine, name) for name in Settings.__dataclass_fields__}
    del names["restricted"]

    assert offered == names | {"python": "", "capture": []}
    assert Settings().changed(offered) == (mine, [])
