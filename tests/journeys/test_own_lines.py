"""Which of my lines takes the time? From recording with torch.profiler to the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from tests.journeys.conftest import line_of

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

pytest.importorskip("torch")

TRAIN = """
import torch
from torch import nn

class Gate(nn.Module):
    def forward(self, x):
        big = x.repeat(256, 1) * 2
        return x + (
            big[0]
            .exp()
        )

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gates = nn.ModuleList(Gate() for _ in range(2))
        self.head = nn.Linear(512, 512)

    def forward(self, x):
        for gate in self.gates:
            x = gate(x)
        return self.head(x)

net = Net()
sgd = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    sgd.zero_grad()
    net(torch.randn(1, 512)).mean().backward()
    sgd.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("observer", ["1", "0"], ids=["observer", "stacks"])
def test_a_line_of_operators_in_a_layer(walk: Walk, observer: str) -> None:
    script = walk.write("train.py", TRAIN)

    walk.run("pyprof2", "capture", "--kineto", "train.py", PYPROF2_OBSERVER=observer)
    walk.run("pyprof2", "parse", "train.json.gz")
    rows = walk.rows("prof", "train.pyprof2", "--by", "layer,source", "--step", "2")

    found = {(row["layer"], row["source"]): int(row["time_ns"]) for row in rows}
    in_layers = {source for layer, source in found if layer in ("gates.0", "gates.1")}
    line = f"{script}:{line_of(TRAIN, 'x.repeat')}"
    assert in_layers - {"(none)"} <= {
        f"{script}:{line_of(TRAIN, part)}" for part in ("x.repeat", "x + (", "big[0]", ".exp()")
    }
    assert ("head", f"{script}:{line_of(TRAIN, 'self.head(x)')}") in found
    if observer == "1":
        # 131,072 numbers, of 512 elsewhere.
        slowest = max((key for key in found if key[0] == "gates.1"), key=lambda key: found[key])
        assert slowest == ("gates.1", line)
        assert "(none)" not in in_layers
    # The product of the second step is made of the linear layer, which the stacks know.
    ops = pd.read_parquet(walk.folder / "train.pyprof2" / "ops")
    product = ops.loc[ops["op"] == "aten::addmm", "op_id"].iloc[1]
    said = "record_function_id" if observer == "1" else "around"
    head = f"{script}:{line_of(TRAIN, 'self.head(x)')}"
    # Long paths go on in the next line.
    explained = "".join(walk.text("explain", "train.pyprof2", f"op:{product}").split())
    assert f"source{head}({said})" in explained
