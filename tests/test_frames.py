"""What a frame of a Python stack says, and whose code it is."""

from __future__ import annotations

import pytest

from pyprof2.frames import is_user_path, parse_frame, user_source


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("train.py(12): main", ("train.py", 12)),
        ("/home/me/net.py(3): <lambda>", ("/home/me/net.py", 3)),
        ("train.py(12)", ("train.py", 12)),
        ("a.py(1): f(2): g", ("a.py", 1)),
        ("My Project (2)/train.py(12): main", ("My Project (2)/train.py", 12)),
        ("C:\\me\\train.py(12): main", ("C:\\me\\train.py", 12)),
        ("<string>(1): f", ("<string>", 1)),
        ("two\nlines.py(4): f", ("two\nlines.py", 4)),
        ("<built-in method mm of type object at 0x7f>", None),
        ("nn.Module: Linear_0", None),
        ("train.py(99999999999): main", None),
        ("train.py(-1): main", None),
        ("(12): main", None),
        ("", None),
    ],
)
def test_a_frame_is_a_path_and_a_line(text: str, frame: tuple[str, int] | None) -> None:
    assert parse_frame(text) == frame


@pytest.mark.parametrize(
    "path",
    [
        "train.py", "/home/me/train.py", "src/net/layers.py", "C:\\me\\train.py",
        "/opt/venv/lib/python3.11/site-packages/timm/models/vit.py",
        "/usr/lib/python3/dist-packages/apex/fused.py", "torchvision/models/resnet.py",
        "mytorch/nn.py", "code/train.py", "/home/me/asyncio/train.py", "test_net.py",
        "types_of_nets.py", "transformers/models/bert.py",
    ],
)  # fmt: skip
def test_code_of_the_user_and_of_packages_is_a_source(path: str) -> None:
    assert is_user_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "torch/nn/modules/module.py", "/opt/site-packages/torch/nn/functional.py",
        "C:\\site-packages\\torch\\nn\\functional.py", "torchgen/model.py", "functorch/x.py",
        "/opt/site-packages/pyprof2/nvtx/ops.py", "pyprof2/nvtx/ops.py", "threading.py",
        "asyncio/events.py", "concurrent/futures/thread.py", "runpy.py",
        "/usr/lib/python3.11/threading.py", "/usr/lib64/python3.9/asyncio/base.py",
        "/opt/conda/lib/python3.12/contextlib.py", "<string>", "<frozen runpy>",
    ],
)  # fmt: skip
def test_torch_pyprof2_and_the_standard_library_are_none(path: str) -> None:
    assert not is_user_path(path)


@pytest.mark.parametrize(
    ("root", "source"),
    [
        (None, "/w/net/a.py:7"), ("/w/net", "/w/net/a.py:7"), ("/w/net/", "/w/net/a.py:7"),
        ("/w", "/w/net/a.py:7"), ("/", "/w/net/a.py:7"), ("/w/ne", None), ("/w/other", None),
    ],
)  # fmt: skip
def test_a_root_leaves_out_what_is_not_below_it(root: str | None, source: str | None) -> None:
    assert user_source("/w/net/a.py(7): f", root) == source


def test_what_is_no_frame_of_the_user_is_no_source() -> None:
    assert user_source("torch/nn/x.py(1): f") is None
    assert user_source("nn.Module: Linear_0") is None
