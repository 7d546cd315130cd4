"""What is installed is what is tested: lower bounds and pins."""

from __future__ import annotations

import configparser
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
TOOLS: Final = {
    "hypothesis", "pytest", "pytest-randomly", "pytest-rerunfailures", "pytest-xdist", "setuptools",
}  # fmt: skip
"""What builds the package and runs the tests with the oldest versions."""
NEEDED: Final = {
    "execnet", "greenlet", "importlib-resources", "iniconfig", "packaging", "pluggy", "pygments",
    "python-dateutil", "pytz", "sortedcontainers", "typing-extensions", "tzdata",
}  # fmt: skip
"""What the oldest versions, and these tools, need."""


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

    assert {name: lowest[name] for name in lowest.keys() - TOOLS - NEEDED} == bounds()


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


def hashed(name: str) -> dict[str, str]:
    """Return the versions in a file of requirements; each is exact, and has a SHA-256."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    entries = re.sub(r"#.*|\\\n", "", text).strip().splitlines()
    found = [
        re.fullmatch(r"([\w.-]+)==([\w.+]+)(?: ; [^-]+)?( +--hash=sha256:[0-9a-f]{64})+", entry)
        for entry in entries
    ]
    assert all(found), [e for e, match in zip(entries, found, strict=True) if match is None]
    return {plain(match[1]): match[2] for match in found if match}


UNHASHED: Final = {"torch", "uv"}
"""See requirements/generate.py."""


def test_ci_installs_by_hash_the_versions_that_are_tested_together() -> None:
    parts = [hashed(name) for name in ("ci.txt", "ci-integrations.txt", "ci-timm.txt")]
    newest = {n: version for n, version in pins("constraints.txt").items() if n not in UNHASHED}

    assert sum(map(len, parts)) == len(newest)
    assert parts[0] | parts[1] | parts[2] == newest


def test_ci_installs_the_oldest_versions_by_hash() -> None:
    assert hashed("ci-lowest.txt") == pins("constraints-lowest.txt")


def test_a_release_is_built_with_the_backend_that_is_pinned() -> None:
    assert hashed("build.txt") == {"setuptools": pins("constraints.txt")["setuptools"]}


def test_what_is_installed_by_hash_comes_from_the_index_that_the_machine_names() -> None:
    files = sorted((ROOT / "requirements").glob("*.txt"))

    assert len(files) == 5
    assert not [file.name for file in files if re.search(r"://|--\w*index", file.read_text())]


@pytest.mark.parametrize(
    "target", [".annotate,test,docs", ".annotate,test,integrations", ".lowest"]
)
def test_in_ci_all_but_torch_is_installed_by_hash_and_nothing_else(target: str) -> None:
    words = ["make", "--dry-run", "--always-make", "CI=true", "VENV=v", f"v/{target}"]
    done = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    installs = [line for line in done.stdout.splitlines() if "pip install" in line]

    assert "--require-hashes --no-deps -r requirements/ci" in installs[0]
    assert installs[-1].endswith("--no-deps --no-build-isolation -e .")
    between = installs[1:-1]
    assert between == [] or (len(between) == 1 and between[0].endswith("constraints.txt torch"))
