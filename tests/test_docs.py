"""The documentation names what the code has."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import pyprof2
from pyprof2 import errors
from pyprof2.analysis.costs import registry
from pyprof2.signatures import OpCall, Tensor
from tests.conftest import once
from tests.reports.page.opened import Opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
IN_RECORDED: Final = (
    "pyprof2.nvtx", "pyprof2.capture.entry_points",
    "pyprof2.capture.on_cpu", "pyprof2.capture.recorders", "pyprof2.capture.run_entry",
    "pyprof2.capture.window",
)  # fmt: skip
"""What runs in the recorded process, and needs torch."""


def _error_classes() -> list[type[errors.Pyprof2Error]]:
    """Return every error class of the package, wherever it is defined."""
    for module in pkgutil.walk_packages(pyprof2.__path__, "pyprof2."):
        if not module.name.startswith((*IN_RECORDED, "pyprof2.integrations.", "pyprof2.__main__")):
            importlib.import_module(module.name)
    # Those of the recorded process reach nobody as objects: another test may have imported them.
    return [
        cls
        for cls in _with_subclasses(errors.Pyprof2Error)
        if not cls.__module__.startswith(IN_RECORDED)
    ]


def _with_subclasses(
    cls: type[errors.Pyprof2Error],
) -> Iterator[type[errors.Pyprof2Error]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _with_subclasses(child)


def test_every_error_has_a_section_that_says_what_to_do() -> None:
    page = (DOCS / "messages.rst").read_text(encoding="utf-8")
    documented = re.findall(r"^\.\. _(\w+):\n\n(\w+)\n-+$", page, re.MULTILINE)

    names = [cls.__name__ for cls in _error_classes()]

    assert sorted(documented) == sorted((name, name) for name in names)


def test_the_tree_of_errors_shows_every_error_of_its_module() -> None:
    names = [cls.__name__ for cls in _error_classes() if cls.__module__ == errors.__name__]

    assert errors.__doc__
    assert [name for name in names if name not in errors.__doc__] == []


@pytest.mark.parametrize(
    "name",
    ["demo", "test", "test-integrations", "test-torch", "check", "docs", "web", "fuzz", "bench"],
)
def test_a_make_target_that_the_documents_name_is_there(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    assert re.search(rf"^{name}:(?: |$)", makefile, re.MULTILINE)


@pytest.fixture(scope="module")
def built() -> Path:
    """Return the documentation as `make docs` builds it."""
    pytest.importorskip("furo", reason="no Sphinx with the theme: pip install -e '.[docs]'")
    return once("documentation", _build)


def _build(folder: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(DOCS), str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)


def test_no_block_is_wider_than_its_column_and_output_is_no_python(
    chromium: Browser, built: Path
) -> None:
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    seen = 0
    for file in sorted(built.rglob("*.html")):
        if file.name == "sample-report.html" or "_static" in file.parts:
            continue
        page.goto(file.as_uri())
        blocks = page.locator("article pre").evaluate_all(
            "all => all.map(e => [e.scrollWidth - e.clientWidth, e.textContent])"
        )
        assert [text for beyond, text in blocks if beyond > 1] == [], file.name
        assert page.evaluate("document.documentElement.scrollWidth") <= 1440, file.name
        # Output that is coloured as Python would not be Python.
        for code in page.locator(".highlight-python, .highlight-default").all_inner_texts():
            ast.parse(textwrap.dedent(code))
        seen += len(blocks)
    context.close()
    assert seen > 100


def test_the_sample_report_is_of_today_s_program_and_opens(chromium: Browser, built: Path) -> None:
    links = [(built / name).read_text(encoding="utf-8") for name in ("index.html", "report.html")]
    assert all('href="sample-report.html"' in text for text in links)

    opened = Opened(chromium.new_context(), built / "sample-report.html", "page=timeline")

    script = (ROOT / "pyprof2" / "data" / "built" / "report.js").read_text()
    assert script[-500:] in opened.page.content()
    assert opened.page.locator(".chart canvas").count() == 1
    assert opened.faults == []
    opened.page.context.close()


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "index.rst").read_text(encoding="utf-8")
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.glob("**/*.rst")}

    assert pages - {"index"} == {line.strip() for line in index.splitlines()} & pages


def test_links_between_files_of_the_repository_lead_somewhere() -> None:
    for page in (*ROOT.glob("*.rst"), ROOT / "benchmarks" / "README.rst"):
        text = page.read_text(encoding="utf-8")
        links = re.compile(r"`[^`<]*\s<([^>:#]+)>`_|^\.\. (?:image|figure):: (\S+)", re.MULTILINE)
        targets = links.findall(text)

        missing = [t for pair in targets for t in pair if t and not (page.parent / t).exists()]
        assert missing == [], page


def test_the_figures_of_the_readme_are_those_that_were_measured() -> None:
    text = " ".join((ROOT / "README.rst").read_text(encoding="utf-8").split())
    ways = json.loads((ROOT / "benchmarks" / "results" / "against_hta.json").read_bytes())["ways"]
    ours, theirs = ways["parse"], ways["HTA"]
    kept = (DOCS / "predecessors.rst").read_text(encoding="utf-8")
    coverage = (ROOT / "benchmarks" / "README.rst").read_text(encoding="utf-8")

    assert f"takes {ours['cpu_s']} s of CPU" in text
    assert f"and {ours['peak_mb'] / 1000:.2f} GB of memory" in text
    assert f"takes {theirs['cpu_s']:.0f} s and {theirs['peak_mb'] / 1000:.2f} GB" in text
    promised, done = re.findall(r"(\d+) promises.*?(\d+) are kept", kept, re.DOTALL)[0]
    assert f"Of {promised} promises" in text
    assert f"{done} are kept" in text
    linked, costed = re.findall(r"median of 26\s+([\d.]+)\s+([\d.]+)", coverage)[0]
    assert f"for {float(linked):g} % of its kernels' time" in text
    assert f"bytes for {costed} % of its work" in text


def test_the_version_stands_in_one_place() -> None:
    version = re.escape(pyprof2.__version__)
    files = [ROOT / "setup.cfg", ROOT / "pyproject.toml", *DOCS.glob("*.py")]

    assert not [path for path in files if re.search(rf"\b{version}\b", path.read_text("utf-8"))]
    assert re.search(rf"^{version}\b", (ROOT / "CHANGELOG.rst").read_text("utf-8"), re.MULTILINE)


def test_the_formula_that_contributing_shows_gives_its_flops_and_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    text = (ROOT / "CONTRIBUTING.rst").read_text("utf-8")
    example = text.partition(".. code-block:: python\n\n")[2].partition("\n\n-")[0]
    names: dict[str, Any] = {}

    exec(textwrap.dedent(example), names)  # noqa: S102 - our own page
    cost = names["scaled_matmul"](
        OpCall("my::scaled_matmul", (Tensor((2, 3), "f32"), Tensor((3, 5), "f32")))
    )

    assert cost.flops == 2 * 2 * 3 * 5 + 2 * 5
    assert cost.bytes == 4 * (2 * 3 + 3 * 5 + 2 * 5)
