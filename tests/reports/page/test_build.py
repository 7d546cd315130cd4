"""What is built for the page is what its sources give, from packages that are pinned by hash."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

WEB: Final = ROOT / "web"
DATA: Final = ROOT / "pyprof2" / "data" / "built"
BUILT: Final = ("report.js", "report.css", "dials.js", "dials.css", "report-licences.txt")


@pytest.fixture(scope="module")
def locked() -> dict[str, Any]:
    """Return the packages of the lock file."""
    packages: dict[str, Any] = json.loads((WEB / "package-lock.json").read_text())["packages"]
    return packages


def test_a_build_gives_the_files_that_are_committed(web_modules: Path, tmp_path: Path) -> None:
    command = ["npm", "run", "build", "--", str(tmp_path)]
    subprocess.run(command, cwd=web_modules, check=True)

    for name in BUILT:
        assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes(), f"make web: {name}"


def test_every_package_is_pinned_by_hash_and_names_no_host(locked: dict[str, Any]) -> None:
    assert len(locked) > 20
    for name, package in locked.items():
        assert "resolved" not in package
        assert not name or package["integrity"].startswith("sha512-"), name
    text = "".join(path.read_text() for path in WEB.iterdir() if path.is_file())
    assert not re.search(r"https?://[^ ]*(registry|npm)", text)


def test_versions_are_exact() -> None:
    named = json.loads((WEB / "package.json").read_text())
    for kind in ("dependencies", "devDependencies"):
        for name, version in named[kind].items():
            assert re.fullmatch(r"\d+\.\d+\.\d+", version), name


def test_every_package_in_the_page_has_its_licence(locked: dict[str, Any]) -> None:
    text = (DATA / "report-licences.txt").read_text()

    for name in ("echarts", "zrender", "tslib", "d3-flame-graph", "tabulator-tables"):
        version = locked[f"node_modules/{name}"]["version"]
        assert re.search(rf"^{name} {version} \(", text, re.MULTILINE), name
    assert "Apache License" in text
    assert "BSD 3-Clause" in text or "Redistribution and use" in text


def test_the_program_makes_no_requests_and_no_html_of_data() -> None:
    words = (
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
        "fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon",
    )  # fmt: skip

    for path in (*(WEB / "report").rglob("*.js"), *(WEB / "dials").rglob("*.js")):
        text = path.read_text()
        # The dials ask their host, on loopback; alone their policy forbids it.
        allowed = {"fetch("} if path.name == "host.js" else set()
        assert {word for word in words if word in text} == allowed, path.name
