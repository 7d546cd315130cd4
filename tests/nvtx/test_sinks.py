"""Texts that NVTX copies, which the package `nvtx` has no way to."""

from __future__ import annotations

from typing import Any

import pytest

from pyprof2.nvtx import sinks
from pyprof2.nvtx.sinks import CAME_AT_MOST, Copied, Messages, _EventAttributes, copied_texts
from tests.nvtx.recorder import Recorder

lib = pytest.importorskip("nvtx._lib", reason="the annotation needs nvtx")


@pytest.fixture
def attributes() -> Any:
    """Return attributes as the package makes them."""
    domain = lib.Domain("test")
    if not hasattr(domain, "handle"):
        pytest.skip("this version of nvtx makes none where no profiler listens")
    first = (domain,) if hasattr(lib, "DummyDomain") else ()
    return lib.EventAttributes(*first, lib.RegisteredString(domain.handle, ""), "blue", None, 0)


def test_attributes_have_a_text_that_is_copied_for_the_time_being(attributes: Any) -> None:
    copied = copied_texts(attributes)
    assert copied is not None
    attributes.payload = 77
    (event,) = (
        found
        for offset in range(0, type(attributes).__basicsize__ - 47, 8)
        if (found := _EventAttributes.from_address(id(attributes) + offset)).payload == 77
    )
    assert event.message_type == 3

    with copied(attributes, "é"):
        assert (event.message_type, event.message) == (1, "é".encode())
        assert event.payload == 77
    assert event.message_type == 3


def test_attributes_that_we_do_not_know_are_left_alone(
    attributes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "_INT64", 99)

    assert copied_texts(attributes) is None


def test_every_text_is_registered_that_comes_twice() -> None:
    messages = Messages(Recorder().sink())
    texts = [f"text {number}" for number in range(5000)]

    assert all(type(messages.next_of(text)) is Copied for text in texts)
    assert not any(type(messages.next_of(text)) is Copied for text in texts)


def test_texts_that_came_once_are_forgotten_in_time() -> None:
    messages = Messages(Recorder().sink())
    for number in range(3 * CAME_AT_MOST):
        messages.next_of(f"text {number}")

    assert len(messages._came) + len(messages._came_before) <= CAME_AT_MOST
