"""A file of settings for libkineto is not taken in silence, nor left out in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof2.cli.capture import warn_of_config

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def said(
    path: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Return what capture says where the variable has this value."""
    monkeypatch.delenv("KINETO_CONFIG", raising=False)
    if path is not None:
        monkeypatch.setenv("KINETO_CONFIG", path)
    warn_of_config()
    return capsys.readouterr().err


def test_settings_have_the_options_that_stand_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "libkineto.conf"
    config.write_text(
        "# for the cluster\nPROFILE_START_ITERATION = 10\nACTIVITIES_LOG_FILE=/tmp/a.json # x\n"
        "PROFILE_WITH_STACK=true\nVERBOSE_LOG_LEVEL=1\n\n#PROFILE_MEMORY=true\n"
    )

    assert said(str(config), monkeypatch, capsys) == (
        f"pyprof2: KINETO_CONFIG: {config}: capture takes nothing from it, say it by options "
        "(PROFILE_START_ITERATION: --steps A:B; ACTIVITIES_LOG_FILE: -o OUT; PROFILE_WITH_STACK: "
        "is recorded anyway)\n"
    )


def test_a_file_that_is_not_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = said(str(tmp_path / "none.conf"), monkeypatch, capsys)

    assert "none.conf: No such file or directory; capture takes nothing from it" in line


def test_without_the_variable_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(None, monkeypatch, capsys) == said("", monkeypatch, capsys) == ""
