"""Parameters and buffers are told by name, with what they take and the line that made them."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.nvtx.test_memory_tags import gpt, recorded, train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")


def named(path: Path, run: Callable[[], object]) -> dict[str, dict[str, Any]]:
    """Return the weights of what ran under torch.profiler, by name."""
    rows, refuted = recorded(path, run).named(0)
    assert refuted == 0
    return {row["name"]: row for row in rows.to_pylist()}


def test_a_tied_weight_has_one_name_and_what_belongs_to_it(tmp_path: Path) -> None:
    found = named(tmp_path, lambda: train(gpt, 2))

    assert [*found][:2] == ["places", "words.weight"]
    assert "head.weight" not in found
    assert sum(row["bytes"] for row in found.values()) == 234_240
    words = found["words.weight"]
    assert (words["category"], words["dtype"], words["device_type"]) == (
        "parameter",
        "float32",
        "cpu",
    )
    assert (words["bytes"], words["gradient_bytes"]) == (25_600, 25_600)
    assert words["state_bytes"] == 2 * 25_600 + 4


def test_the_line_is_the_users_own_that_made_it_and_of_a_copy_that_of_its_module(
    tmp_path: Path,
) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 8)
            self.second = copy.deepcopy(self.first)
            self.register_buffer("scale", torch.ones(8))

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.second(self.first(x)) * self.scale
            return result

    found = named(tmp_path, lambda: Net()(torch.ones(2, 8)).sum().backward())

    begin = Net.__init__.__code__.co_firstlineno
    lines = {name: row["source"].rpartition(":") for name, row in found.items()}
    assert {path for path, _, _ in lines.values()} == {__file__}
    assert {name: int(line) - begin for name, (_, _, line) in lines.items()} == {
        "first.weight": 2, "first.bias": 2, "second.weight": 3, "second.bias": 3, "scale": 4,
    }  # fmt: skip
    assert found["scale"]["category"] == "buffer"
    assert found["scale"]["gradient_bytes"] is None
    assert found["scale"]["state_bytes"] is None


def test_two_models_with_the_same_paths_have_names_of_their_own(tmp_path: Path) -> None:
    class Pair:
        def __init__(self) -> None:
            self.left = nn.Sequential(nn.Linear(4, 4))
            self.right = nn.Sequential(nn.Linear(4, 4))

        def run(self) -> None:
            self.right(self.left(torch.ones(2, 4))).sum().backward()

    pair = Pair()

    found = named(tmp_path, pair.run)

    assert set(found) == {"0.weight", "0.bias", "right.0.weight", "right.0.bias"}


def test_parts_of_one_storage_take_their_own_bytes_each(tmp_path: Path) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            flat = torch.randn(24)
            self.low, self.high = nn.Parameter(flat[:16].view(4, 4)), nn.Parameter(flat[16:])

        def forward(self, x: Tensor) -> Tensor:
            return functional.linear(x, self.low).sum() + self.high.sum()

    flat = Flat()

    found = named(tmp_path, lambda: flat(torch.ones(2, 4)).backward())

    assert {name: row["bytes"] for name, row in found.items()} == {"low": 64, "high": 32}
    assert {name: row["gradient_bytes"] for name, row in found.items()} == {"low": 64, "high": 32}


def test_more_weights_than_a_marker_has_room_for_are_all_told(tmp_path: Path) -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ParameterDict(
                {f"a_name_of_some_length_{at}": torch.zeros(at + 1) for at in range(300)}
            )

        def forward(self) -> Tensor:
            return sum((part.sum() for part in self.parts.values()), torch.zeros(()))

    found = named(tmp_path, lambda: Many()().backward())

    assert sorted(row["bytes"] for row in found.values()) == [4 * at for at in range(1, 301)]


def test_what_only_the_optimizer_knows_is_named_after_it(tmp_path: Path) -> None:
    loose = torch.zeros(6, requires_grad=True)

    def twice() -> None:
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD([*model.parameters(), loose], lr=0.1, momentum=0.9)
        for _ in range(2):
            (model(torch.ones(2, 4)).sum() + loose.sum()).backward()
            optimizer.step()

    found = named(tmp_path, twice)

    assert set(found) == {"weight", "bias", "SGD.0.2"}
    assert (found["SGD.0.2"]["bytes"], found["SGD.0.2"]["state_bytes"]) == (24, 24)
