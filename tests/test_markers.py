"""The marker format: what is written is read back, and nothing else is a marker."""

from __future__ import annotations

import json
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pyprof2.markers import (
    KINDS,
    MAX_TEXT_BYTES,
    VERSION,
    Marker,
    OpTexts,
    format_marker,
    pack_payload,
    parse_marker,
    parse_version,
)
from pyprof2.signatures import Input, Scalar, Tensor

ADDMM = Marker(
    "op",
    op="aten::addmm",
    inputs=(
        Tensor((1024,), "f32"),
        Tensor((512, 768), "f32"),
        Tensor((768, 1024), "f32", (1, 768)),
        Scalar(1),
        Scalar(0.5),
    ),
    device="cuda:0",
    layer="blocks.0.mlp",
    source="train.py:12",
    direction="forward",
)

NASTY = 'it\'s a "quoted" C:\\path\\é\n\t{%25} \U0001f600'


def _texts() -> st.SearchStrategy[str]:
    return st.text() | st.text(alphabet="'\"\\%{}[]:,é\n0a", max_size=20)


def _inputs() -> st.SearchStrategy[Input]:
    shapes = st.lists(st.integers(0, 2**15), max_size=4).map(tuple)
    dtypes = st.sampled_from(["f32", "bf16", None])
    tensors = st.builds(Tensor, shapes, dtypes) | shapes.flatmap(
        lambda shape: st.just(Tensor(shape, "f32", shape))
    )
    numbers = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
    atoms = numbers | st.booleans() | _texts() | st.none()
    values = atoms | st.lists(atoms | st.lists(atoms, max_size=2), max_size=3)
    return st.none() | tensors | st.builds(Scalar, values) | st.lists(tensors).map(tuple)


def _markers() -> st.SearchStrategy[Marker]:
    texts = st.none() | _texts()
    numbers = st.none() | st.integers(0, 2**53)
    return st.builds(
        Marker,
        st.sampled_from(KINDS),
        op=texts,
        inputs=st.none() | st.lists(_inputs(), max_size=6).map(tuple),
        layer=texts,
        source=texts,
        direction=st.sampled_from([None, "forward", "backward", "optimizer", "other"]),
        recompute=st.booleans(),
        step=numbers,
        ranks=st.none() | st.lists(st.integers(0, 9)).map(tuple),
    )


@pytest.mark.parametrize("quoteless", [False, True])
@given(marker=_markers())
def test_a_marker_that_was_written_is_read_back(marker: Marker, *, quoteless: bool) -> None:
    text = format_marker(marker, quoteless=quoteless)

    assert parse_marker(text) == marker
    assert parse_version(text) == VERSION


@given(marker=_markers())
def test_the_quoteless_form_needs_no_escape_in_json(marker: Marker) -> None:
    text = format_marker(marker, quoteless=True)

    assert json.dumps(text) == f'"{text}"'


def _claim(**fields: object) -> Marker | None:
    return parse_marker(json.dumps({"pyprof2": 1, "kind": "op", "op": "aten::mm"} | fields))


@pytest.mark.parametrize(
    ("possible", "impossible"),
    [
        pytest.param([2**40], [2**40 + 1], id="a dimension"),
        pytest.param([1] * 64, [1] * 65, id="the number of dimensions"),
        pytest.param([2**31, 2**31], [2**31, 2**31, 2], id="the number of elements"),
        pytest.param([0, 2**31, 2**31], [0, 2**31, 2**32], id="elements of an empty tensor"),
    ],
)
def test_shapes_that_no_tensor_has_are_no_marker(
    possible: list[int], impossible: list[int]
) -> None:
    claimed = _claim(inputs=[{"shape": possible}])

    assert claimed is not None
    assert claimed.inputs == (Tensor(tuple(possible)),)
    assert _claim(inputs=[{"shape": impossible}]) is None
    assert _claim(inputs=[[{"shape": [2]}, {"shape": impossible}]]) is None


@pytest.mark.parametrize(
    ("field", "most"),
    [
        pytest.param("step", 2**53, id="steps"),
        pytest.param("bytes", 2**53, id="bytes of a collective"),
        pytest.param("threads", 2**20, id="threads"),
        pytest.param("cache_bytes", 2**53, id="cache"),
        pytest.param("bytes_per_s", 1e14, id="bandwidth"),
    ],
)
def test_numbers_beyond_what_can_be_are_no_marker(field: str, most: float) -> None:
    assert _claim(**{field: most}) is not None
    assert _claim(**{field: 2 * most}) is None
    assert _claim(**{field: -1}) is None


@pytest.mark.parametrize("peak", [0, -1, 1.1e16, "a"])
def test_peaks_that_no_cpu_has_are_no_marker(peak: object) -> None:
    assert _claim(flop_per_s={"f32": 1e16}) is not None
    assert _claim(flop_per_s={"f32": peak}) is None


def test_the_text_of_an_op_is_small_and_says_what_it_is() -> None:
    assert format_marker(ADDMM) == (
        '{"pyprof2":2,"kind":"op","op":"aten::addmm","inputs":[{"shape":[1024],"dtype":"f32"},'
        '{"shape":[512,768],"dtype":"f32"},{"shape":[768,1024],"dtype":"f32","strides":[1,768]},'
        '{"value":1},{"value":0.5}],"device":"cuda:0","layer":"blocks.0.mlp",'
        '"source":"train.py:12","direction":"forward"}'
    )


def test_the_quoteless_form_of_a_layer_reads_like_the_plain_one() -> None:
    marker = Marker("layer", layer="blocks.0", module="Block")

    text = format_marker(marker, quoteless=True)

    assert text == "{'pyprof2':2,'kind':'layer','layer':'blocks.0','module':'Block'}"


@pytest.mark.parametrize("quoteless", [False, True])
def test_any_text_fits_into_a_marker(*, quoteless: bool) -> None:
    marker = Marker("layer", layer=NASTY, source=NASTY)

    assert parse_marker(format_marker(marker, quoteless=quoteless)) == marker


@pytest.mark.parametrize("quoteless", [False, True])
def test_a_file_name_that_is_no_unicode_is_written_all_the_same(*, quoteless: bool) -> None:
    marker = Marker("source", source="caf\udce9.py:1")

    parsed = parse_marker(format_marker(marker, quoteless=quoteless))

    assert parsed == Marker("source", source="caf\\udce9.py:1")


def test_equal_lists_of_tensors_are_written_once() -> None:
    tensors = tuple(Tensor((n,), "f32") for n in range(1, 500))
    marker = Marker("op", op="aten::_fused_adam_", inputs=(tensors, tensors, tensors, tensors))

    text = format_marker(marker)

    assert len(text) < 1.1 * len(format_marker(Marker("op", op="f", inputs=(tensors,)))) + 100
    assert parse_marker(text) == marker


@given(marker=_markers(), device=st.sampled_from([None, "cpu", "cuda:0"]))
def test_texts_of_one_op_are_those_that_are_made_one_by_one(
    marker: Marker, device: str | None
) -> None:
    op = replace(marker, kind="op", op="aten::mm", inputs=None)
    texts = OpTexts(op)

    for inputs in (marker.inputs, None, (tuple(Tensor((n, n), "f32") for n in range(10_000)),)):
        assert texts.text(inputs, device) == format_marker(
            replace(op, inputs=inputs, device=device)
        )


def test_a_text_that_is_too_long_loses_its_inputs_alone() -> None:
    inputs = (tuple(Tensor((n, n), "f32") for n in range(10_000)),)

    text = format_marker(Marker("op", op="aten::cat", inputs=inputs, layer="a"))

    assert len(text) < MAX_TEXT_BYTES
    assert parse_marker(text) == Marker("op", op="aten::cat", layer="a")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("data loading", id="user's text"),
        pytest.param("aten::mm, seq = 7, op_id = 3, sizes = [[2, 2], [2, 2]]", id="emit_nvtx"),
        pytest.param('{"mod": "torch", "op": "add"}', id="somebody else's JSON"),
        pytest.param("{'mod': 'torch', 'op': 'add', 'args': []}", id="PyProf's"),
        pytest.param('{"pyprof2":1}', id="no kind"),
        pytest.param('{"pyprof2":1,"kind":"op"', id="cut"),
        pytest.param('{"pyprof2":1,"kind":"surprise"}', id="unknown kind"),
        pytest.param('{"pyprof2":3,"kind":"op","op":"aten::mm"}', id="another version"),
        pytest.param('{"pyprof2":"1","kind":"op"}', id="version as text"),
        pytest.param('{"pyprof2":true,"kind":"op"}', id="version as bool"),
        pytest.param('{"pyprof2":1,"kind":"op","op":7}', id="wrong type"),
        pytest.param('{"pyprof2":1,"kind":"op","inputs":[{"shape":[-1]}]}', id="negative dim"),
        pytest.param('{"pyprof2":1,"kind":"op","inputs":[{"shape":[1e400]}]}', id="infinite dim"),
        pytest.param(
            '{"pyprof2":1,"kind":"op","inputs":[{"shape":[99999999999999999999]}]}', id="big"
        ),
        pytest.param('{"pyprof2":1,"kind":"op","inputs":[{}]}', id="empty input"),
        pytest.param('{"pyprof2":1,"kind":"op","inputs":[{"same":0}]}', id="copy of itself"),
        pytest.param('{"pyprof2":1,"kind":"op","inputs":[[{"value":1}]]}', id="list of values"),
        pytest.param(
            '{"pyprof2":1,"kind":"op","inputs":[{"shape":[1],"strides":[1,2]}]}', id="odd strides"
        ),
        pytest.param('{"pyprof2":1,"kind":"op","inputs":[' + "null," * 999 + "null]}", id="many"),
        pytest.param('{"pyprof2":1,"kind":"op","inputs":' + "[" * 50_000, id="deep"),
        pytest.param("{'pyprof2':1,'kind':'op','inputs':" + "[" * 50_000, id="deep, quoteless"),
        pytest.param('{"pyprof2":1,"kind":"op","op":"' + "a" * 10**6 + '"}', id="long"),
        pytest.param("{'pyprof2':1,'kind':'op','op':'__import__('os').system('x')'}", id="code"),
        pytest.param("{'pyprof2':1,'kind':\"op\"}", id="mixed quotes"),
        pytest.param('{"pyprof2":1,"kind":"op","op":"\udc80"}', id="half a surrogate pair"),
    ],
)  # fmt: skip
def test_text_of_somebody_else_is_no_marker(text: str) -> None:
    assert parse_marker(text) is None


def test_markers_of_the_version_before_are_read() -> None:
    text = format_marker(ADDMM).replace('{"pyprof2":2', '{"pyprof2":1')

    assert parse_marker(text) == ADDMM


@given(text=st.text(), cut=st.integers(0, 60), insert=st.text(max_size=3))
def test_no_text_makes_the_parser_raise(text: str, cut: int, insert: str) -> None:
    known = format_marker(ADDMM)
    for broken in (text, known[:cut] + insert + known[cut:], known[:cut] + known[cut + 1 :]):
        parsed = parse_marker(broken)

        assert parsed is None or isinstance(parsed, Marker)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('{"pyprof2":2,"kind":"new"}', 2),
        ("{'pyprof2':17,'kind':'new'}", 17),
        ('{"pyprof2":3}', 3),
        ('{"pyprof2":x}', None),
        ('{"pyprof2":²}', None),
        ("data loading", None),
    ],
)
def test_the_version_of_a_later_format_can_be_read(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_on_the_first_thread_the_payload_is_the_sequence_number() -> None:
    assert pack_payload(7, 0) == 7


@given(sequence_nr=st.integers(0, 2**40 - 1), thread_nr=st.integers(0, 2**23 - 1))
def test_a_payload_is_read_back(sequence_nr: int, thread_nr: int) -> None:
    payload = pack_payload(sequence_nr, thread_nr)

    assert 0 <= payload < 2**63
    assert (payload % 2**40, payload >> 40) == (sequence_nr, thread_nr)


def test_a_rank_that_no_job_has_makes_a_broken_marker() -> None:
    largest = Marker("process", rank=10**9 - 1, world_size=10**9 - 1)

    assert parse_marker(format_marker(largest)) == largest
    assert parse_marker(format_marker(Marker("process", rank=10**9))) is None
    assert parse_marker(format_marker(Marker("process", world_size=10**9))) is None
