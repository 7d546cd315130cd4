"""What to do where a batch does not fit: bytes by hand from `1,000 + 100 · batch`."""

from __future__ import annotations

import pandas as pd
import pytest

from pyprof2.analysis.summaries.batch.limits import limits
from pyprof2.analysis.summaries.batch.model import Model, fit_model
from pyprof2.analysis.summaries.batch.recorded import Memory, Recorded
from pyprof2.analysis.summaries.batch.savings import shortage, wanted

_MB = 1_000_000


def model() -> Model:
    """Return recordings of 1,000 MB and 100 MB a sample; the optimizer's 1,500 never grow."""
    index = pd.MultiIndex.from_tuples([("forward", "matmul")], names=["phase", "group"])
    return fit_model(
        [
            Recorded(
                batch, pd.Series([1e6 * batch], index), [10**6 * batch], [10**6 * batch],
                memory=Memory(
                    {"backward": (1000 + 100 * batch) * _MB, "optimizer": 1500 * _MB},
                    over_base=False, reserved_ratio=1.0, always=1000 * _MB,
                ),
            )
            for batch in (8, 16, 32)
        ]
    )  # fmt: skip


def test_what_accumulation_and_bf16_free_is_what_grows_with_the_batch() -> None:
    # 98 % of 5,000 MB: 1.05 · (1,000 + 100 b) <= 4,900 until b = 36.
    found = limits(model(), 5000 * _MB)
    assert found.largest == 36

    lacks = shortage(model(), found, 60, 5000 * _MB, {})

    assert lacks is not None
    assert (lacks.parts, lacks.micro) == (2, 30)
    assert lacks.expected == pytest.approx(7000 * _MB - 4900 * _MB, abs=2)
    assert lacks.over == pytest.approx(1.05 * 7000 * _MB - 4900 * _MB, abs=2)
    assert lacks.accumulation == pytest.approx(3000 * _MB, abs=2)
    assert lacks.grows == pytest.approx(6000 * _MB, abs=2)
    assert lacks.half == pytest.approx(3000 * _MB, abs=2)
    assert lacks.status == "extrapolated 1.88x"


@pytest.mark.parametrize(
    ("largest", "asked", "enough", "size"),
    [
        pytest.param(36, (8, 60), None, 60, id="asked"),
        pytest.param(36, (8, 36), 99, None, id="asked for what fits"),
        pytest.param(36, (), 99, 99, id="throughput"),
        pytest.param(36, (), 20, None, id="throughput is had"),
        pytest.param(None, (60,), 99, None, id="what fits is not known"),
    ],
)
def test_memory_binds_where_what_is_wanted_does_not_fit(
    largest: int | None, asked: tuple[int, ...], enough: int | None, size: int | None
) -> None:
    assert wanted(largest, asked, enough) == size
