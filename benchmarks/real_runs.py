"""Train with other people's trainers, recorded and not, and see that nothing is lost or changed.

Usage: python -m benchmarks.real_runs [--write PAGE]

The trainings are those of `examples/trainers`: tiny models made from configurations, on the CPU, so
nothing is downloaded. Each runs three times: alone; with steps 3 to 6 recorded from inside, by its
own callback; and whole, under `pyprof2 capture`. A training whose package is missing is left out,
and the reason is printed. The columns of the table:

- equal: whether losses and parameters are the same in all bits as in the training alone;
- steps: the steps of the recording from inside, and whether each has as many linear layers forward
  as the model has, times its batches;
- layer, own line, costed: the share of the op time that has a layer, a line of the program's own,
  and counts of FLOPs and bytes: in the recording from inside, and in the steps of the one by
  `capture`, which has the making of the model too.

With `--write` the table is put into a page of the documentation. Exit code 1 if a
training fails, changes, or loses a step, or if under 90 % of its op time has a line of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyprof2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "examples" / "trainers"
PACKAGES: Final = {
    "plain_loop": None,
    "transformers_loop": "transformers",
    "transformers_trainer": "transformers",
    "lightning_trainer": "lightning",
    "accelerate_loop": "accelerate",
    "timm_loop": "timm",
}
"""What each training needs beside torch."""
STEPS: Final = (3, 4, 5, 6)
OWN_LINES: Final = 0.9
"""The share of the op time that has a line of the training's own, at least."""

_PART: Final = re.compile(r"(\.\. table: real runs\n).*?(\.\. end table\n)", re.DOTALL)


@dataclass(frozen=True)
class Shares:
    """Shares of the op time of a recording, between 0 and 1."""

    layer: float
    own_line: float
    costed: float


@dataclass(frozen=True)
class Outcome:
    """What came of one training, alone and recorded.

    Attributes:
        is_equal: whether losses and parameters are the same in all bits.
        steps: of the recording from inside, with the forward calls of linear layers in each.
        linears: how many there are in each step, as the program counts them.
        unlayered: how many of all those calls have no layer.
        inside: shares of the recording from inside.
        captured: shares of the steps of that by `capture`.
        summary: what was printed of the recording from inside.
    """

    is_equal: bool
    steps: dict[int, int]
    linears: int
    unlayered: int
    inside: Shares
    captured: Shares
    summary: str

    @property
    def has_right_steps(self) -> bool:
        """Whether the steps are those that were wanted, each whole."""
        return self.steps == dict.fromkeys(STEPS, self.linears)


def why_not(name: str) -> str | None:
    """Return why a training cannot run here; None if it can."""
    package = PACKAGES[name]
    if package is None or importlib.util.find_spec(package) is not None:
        return None
    return f"{package} is not installed: make test-integrations installs it"


def run(name: str, folder: Path) -> Outcome:
    """Run a training alone, with its steps recorded, and under capture."""
    script = str(FOLDER / f"{name}.py")
    alone, _ = _train([script], folder, PYPROF2="0")
    inside, printed = _train([script], folder, PYPROF2="3:6")
    captured, _ = _train(
        ["-m", "pyprof2", "-q", "capture", "--kineto", "-o", "captured", script],
        folder,
        PYPROF2="0",
    )
    recording = pyprof2.load(folder / f"{name}.pyprof2")
    whole = pyprof2.load(folder / "captured.json.gz")
    return Outcome(
        is_equal=alone == inside == captured,
        steps=_linears(recording.ops),
        linears=alone["linears_per_step"],
        unlayered=_unlayered(recording.ops),
        inside=_shares(recording.profile()),
        captured=_shares(whole.profile()),
        summary=printed,
    )


def _train(command: Sequence[str], folder: Path, **environment: str) -> tuple[dict[str, Any], str]:
    """Run Python, and return what the training reports, and all that it printed."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"} | environment,
    )  # fmt: skip
    if done.returncode:
        msg = f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}"
        raise RuntimeError(msg)
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome, done.stdout


def _linears(ops: pd.DataFrame) -> dict[int, int]:
    """Return the forward calls of linear layers by step."""
    found = ops[(ops["op"] == "aten::linear") & (ops["direction"] == "forward")]
    return dict(sorted(Counter(found["step"].dropna().astype(int).tolist()).items()))


def _unlayered(ops: pd.DataFrame) -> int:
    return int(ops.loc[ops["op"] == "aten::linear", "layer"].isna().sum())


def _shares(rows: pd.DataFrame) -> Shares:
    """Return what share of the time of the steps' op calls is known."""
    rows = rows[rows["step"].notna()]
    source = rows["source"].astype("string")
    is_own = source.str.startswith(str(FOLDER) + os.sep).fillna(value=False)
    is_costed = rows["cost_status"].isin(("ok", "assumed", "in_parent"))
    times = [
        rows.loc[known, "dur_ns"].sum() for known in (rows["layer"].notna(), is_own, is_costed)
    ]
    return Shares(*(float(time / rows["dur_ns"].sum()) for time in times))


def table(outcomes: dict[str, Outcome]) -> str:
    """Return the table of the documentation."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    lines += _row(
        "training", "with", "equal in all bits", "steps recorded", "layer", "own line", "costed"
    )
    for name, outcome in outcomes.items():
        package = PACKAGES[name]
        steps = ", ".join(map(str, outcome.steps)) + ("" if outcome.has_right_steps else ": wrong")
        pairs = zip(vars(outcome.inside).values(), vars(outcome.captured).values(), strict=True)
        shares = [f"{inside:.1%} / {captured:.1%}" for inside, captured in pairs]
        made_with = f"{package} {version(package)}" if package else f"torch {version('torch')}"
        lines += _row(f"``{name}``", made_with, "yes" if outcome.is_equal else "no", steps, *shares)
    return "\n".join(lines)


def _row(*cells: str) -> list[str]:
    return [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(cells)]


def _run_all(names: Iterable[str]) -> dict[str, Outcome]:
    outcomes = {}
    for name in names:
        reason = why_not(name)
        if reason is not None:
            print(f"{name}: left out: {reason}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            outcomes[name] = run(name, Path(folder))
    return outcomes


def main() -> int:
    """Run all trainings, and print the table, or put it into a page."""
    parser = argparse.ArgumentParser(description="Train with other people's trainers, recorded.")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    page = parser.parse_args().write
    outcomes = _run_all(PACKAGES)
    text = table(outcomes)
    if page is None:
        print(text)
    else:
        old = page.read_text(encoding="utf-8")
        page.write_text(_PART.sub(rf"\1\n{text}\n\n\2", old), encoding="utf-8")
    return int(not all(map(_is_right, outcomes.values())))


def _is_right(outcome: Outcome) -> bool:
    has_lines = min(outcome.inside.own_line, outcome.captured.own_line) >= OWN_LINES
    return outcome.is_equal and outcome.has_right_steps and has_lines


if __name__ == "__main__":
    sys.exit(main())
