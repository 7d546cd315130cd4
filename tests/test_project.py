"""What surrounds the code: addresses, workflows, templates and the recipe agree with it."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.test_requirements import bounds

yaml = pytest.importorskip("yaml")

ROOT: Final = Path(__file__).resolve().parent.parent
GITHUB: Final = ROOT / ".github"
HOME: Final = "https://github.com/pyprof2/pyprof2"
OTHER_NAMES: Final = {"python-isal": "isal"}
"""Packages whose names in conda are others."""


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_home_of_the_project_is_one() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    metadata = settings["metadata"]
    urls = dict(line.split(" = ") for line in metadata["project_urls"].strip().splitlines())
    recipe = (ROOT / "requirements" / "conda" / "meta.yaml").read_text(encoding="utf-8")

    assert metadata["url"] == urls["Source"] == read(ROOT / "CITATION.cff")["repository-code"]
    assert urls["Source"] == HOME
    assert urls["Issues"].startswith(HOME)
    assert f"home: {HOME}\n" in recipe
    assert f"doc_url: {urls['Documentation']}\n" in recipe
    assert read(GITHUB / "ISSUE_TEMPLATE" / "config.yml")["contact_links"][0]["url"].startswith(
        HOME
    )


@pytest.mark.parametrize("name", ["tests", "wheels", "release"])
def test_a_workflow_runs_what_make_does(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    workflow = read(GITHUB / "workflows" / f"{name}.yml")
    steps = [step for job in workflow["jobs"].values() for step in job.get("steps", ())]
    runs = [step["run"] for step in steps if "run" in step]
    targets = [word for run in runs for word in re.findall(r"^make ([\w-]+)", run)]
    matrices = [job["strategy"]["matrix"] for job in workflow["jobs"].values() if "strategy" in job]
    targets += [target for matrix in matrices for target in matrix.get("target", ())]

    assert workflow["permissions"] == {"contents": "read"}
    assert [t for t in targets if not re.search(rf"^{t}:(?: |$)", makefile, re.MULTILINE)] == []
    assert targets or name == "release"
    for job in workflow["jobs"].values():
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()


def test_every_target_of_ci_is_in_a_workflow() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    text = (GITHUB / "workflows" / "tests.yml").read_text(encoding="utf-8")

    for target in re.findall(r"^make ([\w-]+)$", script, re.MULTILINE):
        assert re.search(rf"\b{target}\b", text), target


def test_every_python_that_is_named_is_tested() -> None:
    settings = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", settings)
    matrix = read(GITHUB / "workflows" / "tests.yml")["jobs"]["test"]["strategy"]["matrix"]
    installed = read(GITHUB / "workflows" / "wheels.yml")["jobs"]["installed"]["strategy"]["matrix"]

    assert matrix["python"] == installed["python"] == named


@pytest.mark.parametrize("name", ["failure", "question", "wrong-number"])
def test_an_issue_begins_with_what_check_says(name: str) -> None:
    template = read(GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml")
    fields = {each["id"]: each for each in template["body"]}

    assert "pyprof2 check" in fields["check"]["attributes"]["description"]


def test_the_recipe_for_conda_needs_what_the_metadata_needs() -> None:
    recipe = (ROOT / "requirements" / "conda" / "meta.yaml").read_text(encoding="utf-8")
    run = recipe.partition("  run:\n")[2].partition("\ntest:")[0]
    found = dict(re.findall(r"- ([\w-]+) >=([\d.]+)", run))

    assert found.pop("python") == "3.11"
    assert {OTHER_NAMES.get(name, name): bound for name, bound in found.items()} == bounds()


def test_the_versions_of_torch_that_are_said_to_be_tested_are() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    workflow = (GITHUB / "workflows" / "tests.yml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (usual,) = re.findall(
        r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    (newest,) = re.findall(r"^test_torch (\S+)$", script, re.MULTILINE)

    assert re.findall(r"make test-torch TORCH=(\S+)", workflow) == [newest]
    assert re.findall(r"^TORCH \?= (\S+)$", makefile, re.MULTILINE) == [newest]
    page = (ROOT / "docs" / "recording.rst").read_text(encoding="utf-8")
    assert f"Every change is tested with torch {usual} and {newest}:" in page
    short = [version.rpartition(".")[0] for version in (usual, newest)]
    for name in ("compiled", "watch"):
        page = " ".join((ROOT / "docs" / f"{name}.rst").read_text(encoding="utf-8").split())
        assert f"ested with torch {short[0]} and {short[1]}, " in page, name
