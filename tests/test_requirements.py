"""What is installed is what is tested: lower bounds, pins, and hashes."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TOOLS: Final = {"hypothesis", "pytest", "pytest-randomly", "pytest-xdist"}
"""What runs the tests with the oldest versions."""
UNHASHED: Final = {"torch"}
"""What has builds of its own for each kind of machine, with hashes of their own."""


def plain(name: str) -> str:
    """Return the name of a package as indices compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def pins(path: str) -> dict[str, str]:
    """Return the versions that a file of requirements names exactly; there are no others."""
    text = re.sub(r"#.*", "", (ROOT / path).read_text(encoding="utf-8"))
    requirements = [re.split(r"\s*;| --hash", line)[0] for line in logical_lines(text)]
    found = [re.fullmatch(r"([\w.-]+)==([\w.+]+)", requirement) for requirement in requirements]
    assert all(found), requirements
    return {plain(match[1]): match[2] for match in found if match}


def logical_lines(text: str) -> list[str]:
    lines = text.replace("\\\n", " ").splitlines()
    return [re.sub(r"\s+", " ", line).strip() for line in lines if line.strip()]


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
