"""Values of arguments that commands share."""

from __future__ import annotations

import argparse

import pytest

from pyprof2.cli import arguments


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("512B", 512),
        ("100kB", 100_000),
        ("100 KB", 100_000),
        ("80GB", 80_000_000_000),
        ("80gb", 80_000_000_000),
        ("80G", 80_000_000_000),
        ("1.5TB", 1_500_000_000_000),
        ("1kiB", 1024),
        ("24Gi", 25_769_803_776),
        ("24gib", 25_769_803_776),
        # 79.125 x 1024 x 1024 x 1024
        ("79.125GiB", 84_959_821_824),
    ],
)
def test_a_size_is_the_same_in_upper_and_lower_case(text: str, size: int) -> None:
    assert arguments.byte_count(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "GB", "much", "-1GB", "0", "0.0GB", "1e9", "5PB", "5i", "5iB", "1,5GB", "٣GB", "nan",
     "9300000TB", "9" * 400 + "TB"],
)  # fmt: skip
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a size, as 80GB or"):
        arguments.byte_count(text)
