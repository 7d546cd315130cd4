"""What is installed is what is tested: lower bounds and pins."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TOOLS: Final = {"hypothesis", "pytest", "pytest-randomly", "pytest-xdist", "setuptools"}
"""What builds the package and runs the tests with the oldest versions."""


def plain(name: str) -> str:
    """Return the name of a package as indices compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def pins(path: str) -> dict[str, str]:
    """Return the versions that a file of requirements names exactly; there are no others."""
    text = re.sub(r"#.*", "", (ROOT / path).read_text(encoding="utf-8"))
    requirements = [line.split(";")[0].strip() for line in text.splitlines() if line.strip()]
    found = [re.fullmatch(r"([\w.-]+)==([\w.+]+)", requirement) for requirement in requirements]
    assert all(found), requirements
    return {plain(match[1]): match[2] for match in found if match}


def bounds() -> dict[str, str]:
    """Return the lower bounds of the metadata; every package that is needed has one."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    needed = settings["options"]["install_requires"].strip().splitlines()
    return {plain(line.split(" >= ")[0]): line.split(" >= ")[1] for line in needed}


def test_the_oldest_versions_that_are_tested_are_the_lower_bounds() -> None:
    lowest = pins("constraints-lowest.txt")

    assert {name: lowest[name] for name in lowest.keys() - TOOLS} == bounds()


def test_the_oldest_versions_are_tested_with_the_tools_of_all_tests() -> None:
    lowest, newest = pins("constraints-lowest.txt"), pins("constraints.txt")

    assert {name: lowest[name] for name in TOOLS} == {name: newest[name] for name in TOOLS}


def test_the_versions_that_are_tested_together_are_not_older_than_the_bounds() -> None:
    newest = pins("constraints.txt")

    assert {n for n, bound in bounds().items() if version(newest[n]) < version(bound)} == set()


def test_the_build_backend_is_bounded_and_the_one_that_is_tested_is_pinned() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        (needed,) = tomllib.load(file)["build-system"]["requires"]
    found = re.fullmatch(r"setuptools>=([\d.]+),<([\d.]+)", needed)

    assert found
    built_with = version(pins("constraints.txt")["setuptools"])
    assert version(found[1]) <= built_with < version(found[2])
