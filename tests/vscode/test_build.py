"""What the extension is built from: exact versions, pinned by hash, and nothing that reports."""

from __future__ import annotations

import json
import re
import zipfile
from typing import Any, Final

import pytest

from tests.conftest import ROOT
from tests.vscode.code_server import EXTENSION

FOLDER: Final = ROOT / "editors" / "vscode"


def read(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def test_every_package_is_pinned_by_hash_and_names_no_host() -> None:
    for name, package in read("package-lock.json")["packages"].items():
        assert "resolved" not in package
        assert not name or package["integrity"].startswith("sha512-"), name


def test_versions_are_exact() -> None:
    named = read("package.json")
    for kind in ("dependencies", "devDependencies"):
        for name, version in named[kind].items():
            assert re.fullmatch(r"\d+\.\d+\.\d+", version), name
    # What is used of VS Code is there in the oldest version that it is installed in.
    assert named["engines"]["vscode"] == f"^{named['devDependencies']['@types/vscode']}"


def test_what_may_run_code_is_never_a_setting_of_an_untrusted_workspace() -> None:
    trust = read("package.json")["capabilities"]["untrustedWorkspaces"]

    assert trust["supported"] == "limited"
    assert set(trust["restrictedConfigurations"]) == {
        f"pyprof2.{name}" for name in ("interpreter", "python", "capture", "onSave")
    }


def test_the_extension_asks_nobody_for_anything() -> None:
    sources = "".join(path.read_text() for path in (FOLDER / "src").glob("*.ts"))

    words = ("fetch(", "XMLHttpRequest", "WebSocket", "node:http", "node:net", "createTelemetry")
    assert [word for word in words if word in sources] == []


def test_the_package_has_its_licences_and_no_modules_beside_the_bundle() -> None:
    if not EXTENSION.exists():
        pytest.skip("no extension: make vscode")
    with zipfile.ZipFile(EXTENSION) as archive:
        names = archive.namelist()
        licences = archive.read("extension/licences.txt").decode()

    assert "extension/LICENSE.txt" in names
    assert "extension/out/extension.js" in names
    assert not [name for name in names if "node_modules" in name or name.endswith(".map")]
    for name in ("vscode-languageclient", "vscode-jsonrpc", "minimatch", "semver"):
        version = read("package-lock.json")["packages"][f"node_modules/{name}"]["version"]
        assert re.search(rf"^{name} {version} \(", licences, re.MULTILINE), name
