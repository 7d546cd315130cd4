"""What `pyprof2 prof` shows of rows whose sums the eye can check."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from pyprof2.analysis.summaries.profile_columns import AXES, SUMMARY_COLUMNS
from pyprof2.tables import PROFILE_COLUMNS
from tests.builders import profile_rows

if TYPE_CHECKING:
    from collections.abc import Callable

MM = "aten::mm([4,4] f32, [4,4] f32)"


@pytest.fixture(autouse=True)
def _rows(use_run: Callable[..., Any]) -> None:
    """Two kernels of a product, one of an addition, and a copy: 10 us in two steps."""
    use_run(
        profile_rows(
            {
                "dur_ns": 4000, "step": 1, "op": "aten::mm", "op_id": 0, "layer": "net.fc",
                "kernel": "void gemm<float>(int)", "kernel_short": "gemm", "signature": MM,
                "flops": 8_000_000, "bytes": 4000, "category": "matmul", "stream": 7,
                "cost_status": "ok", "tensor_core": "yes", "direction": "forward",
            },
            {
                "dur_ns": 1000, "step": 1, "op": "aten::add", "op_id": 1, "layer": "net",
                "kernel": "void add", "kernel_short": "add", "category": "elementwise",
            },
            {
                "dur_ns": 3000, "step": 2, "op": "aten::mm", "op_id": 2, "layer": "net.fc",
                "kernel": "void gemm<float>(int)", "kernel_short": "gemm", "signature": MM,
                "flops": 6_000_000, "bytes": 3000, "category": "matmul", "stream": 7,
                "cost_status": "ok", "tensor_core": "yes", "direction": "backward",
            },
            {"dur_ns": 2000, "kernel": "Memcpy HtoD", "category": "memcpy"},
        )
    )  # fmt: skip


def read_csv(text: str) -> list[dict[str, str]]:
    """Return the records of a CSV text."""
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv_has_all_rows_and_all_columns_with_null_as_nothing(
    invoke: Callable[..., Any],
) -> None:
    records = read_csv(invoke("prof", "x", "--csv").out)

    assert list(records[0]) == list(PROFILE_COLUMNS)
    assert [record["dur_ns"] for record in records] == ["4000", "1000", "3000", "2000"]
    assert [record["flops"] for record in records] == ["8000000", "", "6000000", ""]
    assert [record["op"] for record in records] == ["aten::mm", "aten::add", "aten::mm", ""]


def test_json_is_an_array_of_objects_with_whole_numbers_and_nulls(
    invoke: Callable[..., Any],
) -> None:
    records = json.loads(invoke("prof", "x", "--format", "json").out)

    assert list(records[0]) == list(PROFILE_COLUMNS)
    assert [record["dur_ns"] for record in records] == [4000, 1000, 3000, 2000]
    assert [record["flops"] for record in records] == [8_000_000, None, 6_000_000, None]
    assert records[3]["op"] is None


def test_parquet_carries_the_types_and_what_the_columns_mean(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "x.parquet"
    invoke("prof", "x", "--format", "parquet", "-o", path)

    table = parquet.read_table(path)

    assert table.column_names == list(PROFILE_COLUMNS)
    assert table.schema.field("flops").type == pa.int64()
    assert table.schema.field("dur_ns").metadata == {
        b"meaning": b"End minus start.",
        b"unit": b"ns",
    }
    assert table["dur_ns"].to_pylist() == [4000, 1000, 3000, 2000]
    assert table["flops"].to_pylist() == [8_000_000, None, 6_000_000, None]


@pytest.mark.parametrize("axis", AXES)
def test_an_axis_gives_its_key_and_the_sums(axis: str, invoke: Callable[..., Any]) -> None:
    records = json.loads(invoke("prof", "x", "--by", axis, "--format", "json").out)

    assert list(records[0]) == [AXES[axis], *(column.name for column in SUMMARY_COLUMNS)]
    assert sum(record["time_ns"] for record in records) == 10_000
    assert sum(record["count"] for record in records) == 4
    assert sum(record["share_pct"] for record in records) == pytest.approx(100)


def test_axes_combine(invoke: Callable[..., Any]) -> None:
    result = invoke("prof", "x", "--by", "step,op", "--csv", "-c", "step,op,time_ns")

    assert result.lines == [
        '"step","op","time_ns"',
        '1,"aten::mm",4000',
        '1,"aten::add",1000',
        '2,"aten::mm",3000',
        ',"(none)",2000',
    ]


def test_the_table_has_the_heading_units_shares_and_a_total(invoke: Callable[..., Any]) -> None:
    result = invoke("prof", "x", "--by", "op", "-c", "op,count,time_ns,share_pct,tflops")

    assert result.lines[0].split(" | ") == [
        "device GPU X",
        "steps 1-2",
        "kernels 4 in 10.000 us",
        "busy 1.000 us of 2.000 us recorded",
        "linked 75.0 %",
    ]
    assert result.lines[1:3] == ["of 10.000 us of GPU work: costed 100.0 %", ""]
    assert result.lines[3:] == [
        "op         count  time us  share %  TFLOP/s",
        "---------  -----  -------  -------  -------",
        "aten::mm       2    7.000    70.00     2.00",
        "(none)         1    2.000    20.00        -",
        "aten::add      1    1.000    10.00        -",
        "---------  -----  -------  -------  -------",
        "total          4   10.000   100.00     2.00",
    ]  # fmt: skip


def test_the_table_of_kernels_has_these_columns(invoke: Callable[..., Any]) -> None:
    header = invoke("prof", "x", "--by", "kernel", "-w", "300").lines[3].split("  ")

    assert [name.strip() for name in header if name] == [
        "id", "step", "dur us", "share %", "op", "signature", "layer", "kernel_short",
        "TFLOP/s", "GB/s", "roofline %", "TC",
    ]  # fmt: skip


def test_what_is_not_shown_is_summed_below(invoke: Callable[..., Any]) -> None:
    result = invoke("prof", "x", "--top", 1, "-c", "kernel_short,dur_us,share_pct,flops")

    assert result.lines[3:] == [
        "kernel_short  dur us  share %  MFLOP",
        "------------  ------  -------  -----",
        "gemm           4.000    40.00   8.00",
        "------------  ------  -------  -----",
        "3 more         6.000    60.00   6.00",
        "total         10.000   100.00   14.0",
        "1 of 4 rows; more with --top N, all with --csv",
    ]


def test_a_table_without_a_free_column_says_what_its_last_rows_are(
    invoke: Callable[..., Any],
) -> None:
    result = invoke("prof", "x", "--top", 3, "-c", "dur_us")

    assert result.lines[-3:-1] == ["1 more   2.000", "total   10.000"]


def test_the_table_shows_fifty_rows(
    invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    use_run(profile_rows(*({"op": f"op{i}"} for i in range(60))))

    result = invoke("prof", "x", "--by", "kernel")

    assert sum("  op" in line for line in result.lines) == 51  # and the header
    assert "50 of 60 rows" in result.out
    assert len(read_csv(invoke("prof", "x", "--csv").out)) == 60


@pytest.mark.parametrize(
    ("sort", "kernel_ids"),
    [
        pytest.param("dur_ns", [0, 2, 3, 1], id="numbers fall"),
        pytest.param("+dur_ns", [1, 3, 2, 0], id="plus rises"),
        pytest.param("flops", [0, 2, 1, 3], id="null is last"),
        pytest.param("+flops", [2, 0, 1, 3], id="null is last with plus"),
        pytest.param("op", [1, 0, 2, 3], id="text rises"),
        pytest.param("+op", [1, 0, 2, 3], id="text rises with plus"),
        pytest.param("sil", [0, 2, 3, 1], id="a column of PyProf's"),
    ],
)
def test_sort(sort: str, kernel_ids: list[int], invoke: Callable[..., Any]) -> None:
    result = invoke("prof", "x", "--csv", "-c", "kernel_id", "--sort", sort)

    assert [int(line) for line in result.lines[1:]] == kernel_ids


def test_sort_works_on_sums_and_top_cuts_every_format(invoke: Callable[..., Any]) -> None:
    options = ("--by", "op", "--sort", "+time_ns", "--top", 1, "-c", "op,time_ns")

    assert invoke("prof", "x", *options, "--csv").lines[1:] == ['"aten::add",1000']
    assert json.loads(invoke("prof", "x", *options, "--format", "json").out) == [
        {"op": "aten::add", "time_ns": 1000}
    ]


@pytest.mark.parametrize(
    ("options", "time_ns"),
    [
        pytest.param(["--no-copies"], 8000, id="no copies"),
        pytest.param(["--step", "2"], 3000, id="step"),
        pytest.param(["--step", "1:2"], 8000, id="steps"),
        pytest.param(["--op", "add"], 1000, id="op"),
        pytest.param(["--layer", "fc$"], 7000, id="layer"),
        pytest.param(["--kernel", "<float>"], 7000, id="kernel"),
        pytest.param(["--rank", "0"], 10_000, id="rank"),
    ],
)
def test_a_selection_is_all_that_shares_are_of(
    options: list[str], time_ns: int, invoke: Callable[..., Any]
) -> None:
    result = invoke("prof", "x", "--by", "op", "--format", "json", *options)

    records = json.loads(result.out)
    assert sum(record["time_ns"] for record in records) == time_ns
    assert sum(record["share_pct"] for record in records) == pytest.approx(100)


def test_nothing_selected_is_said_and_is_no_error(invoke: Callable[..., Any]) -> None:
    result = invoke("prof", "x", "--rank", 7, "--by", "op")

    assert result.code == 0
    assert result.err == "pyprof2: x: nothing fits the selection\n"
    assert invoke("prof", "x", "--rank", 7, "--csv", "-c", "op").out == '"op"\n'
    assert invoke("prof", "x", "--rank", 7, "--format", "json").out == "[]\n"


def test_depth_cuts_layers(invoke: Callable[..., Any]) -> None:
    result = invoke("prof", "x", "--by", "layer", "--depth", 1, "--csv", "-c", "layer,time_ns")

    assert result.lines[1:] == ['"net",8000', '"(none)",2000']


def test_ranges_are_an_axis_that_is_cut_folded_and_chosen(
    invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    paths = ["request 17 / decode", "request 18 / decode", "request 18", None]
    use_run(profile_rows(*({"range": path} for path in paths)))
    command = ("prof", "x", "--by", "range", "--csv", "-c", "range,time_ns")

    assert invoke(*command, "--depth", 1).lines[1:] == [
        '"request 18",2000', '"(none)",1000', '"request 17",1000',
    ]  # fmt: skip
    assert invoke(*command, "--fold-numbers").lines[1:] == [
        '"request N / decode",2000', '"(none)",1000', '"request N",1000',
    ]  # fmt: skip
    assert invoke(*command, "--range", "18 / dec").lines[1:] == ['"request 18 / decode",1000']


def test_pyprof_gives_its_table(invoke: Callable[..., Any]) -> None:
    result = invoke("prof", "x", "--pyprof", "--csv")

    assert result.lines == [
        '"Idx","Direction","Sub","Module","Op","Kernel","Params","Sil(ns)"',
        '1,"fprop",0,"aten","mm","gemm","[4,4]f32;[4,4]f32,",4000',
        '2,"na",0,"aten","add","add","na=na,",1000',
        '3,"bprop",0,"aten","mm","gemm","[4,4]f32;[4,4]f32,",3000',
        '4,"na",0,"na","na","na","na=na,",2000',
    ]


def test_pyprof_takes_its_own_columns_in_a_table_too(invoke: Callable[..., Any]) -> None:
    result = invoke("prof", "x", "--pyprof", "-c", "idx,op,tc,flops,sil", "--top", 2)

    assert result.lines[3:] == [
        "   Idx  Op   TC     FLOPs  Sil(ns)",
        "------  ---  --  --------  -------",
        "     1  mm   1    8000000     4000",
        "     2  add  na         -     1000",
        "------  ---  --  --------  -------",
        "2 more            6000000     5000",
        " total           14000000    10000",
        "2 of 4 rows; more with --top N, all with --csv",
    ]


def test_keys_of_pyprof_work_without_asking_for_its_table(invoke: Callable[..., Any]) -> None:
    result = invoke("prof", "x", "--csv", "-c", "idx,dir,mod,op,sil,tc,kernel", "--op", "add")

    assert result.lines == [
        '"idx","dir","mod","op","sil","tc","kernel"',
        '2,"na","aten","aten::add",1000,"na","void add"',
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(["-c", "tflopz"], "no column 'tflopz'; did you mean tflops", id="near"),
        pytest.param(["-c", "qqqq"], "no column 'qqqq'; there are kernel_id, rank", id="far"),
        pytest.param(["-c", "op,op"], "column 'op' is named twice", id="twice"),
        pytest.param(["--sort", "durns"], "no column 'durns'; did you mean dur_ns", id="sort"),
        pytest.param(["--by", "op", "-c", "dur_ns"], "no column 'dur_ns'", id="other axis"),
        pytest.param(["--by", "ops"], "no axis 'ops'", id="axis"),
        pytest.param(["--by", "kernel,op"], "axis kernel", id="kernel and another"),
        pytest.param(["--by", "op,op"], "named twice", id="axis twice"),
        pytest.param(["--depth", "2"], "add --by layer", id="depth of kernels"),
        pytest.param(["--by", "op", "--depth", "2"], "add axis layer", id="depth of ops"),
        pytest.param(["--fold-numbers"], "add --by layer", id="folding of kernels"),
        pytest.param(["--by", "op", "--fold-numbers"], "add axis layer", id="folding of ops"),
        pytest.param(["--range", "("], "is no regular expression", id="regex of ranges"),
        pytest.param(["--by", "op", "--pyprof"], "leave --by out", id="pyprof of ops"),
        pytest.param(["--csv", "-w", "80"], "--width is for tables", id="width of csv"),
        pytest.param(["--op", "("], "is no regular expression", id="regex"),
        pytest.param(["--step", "3:1"], "swap them", id="steps"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    options: list[str], message: str, invoke: Callable[..., Any]
) -> None:
    result = invoke("prof", "x", *options)

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("pyprof2: ")
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--top", "0"], id="top"),
        pytest.param(["--top", "-3"], id="negative"),
        pytest.param(["--step", "a"], id="step"),
        pytest.param(["--step", "1:"], id="half a range"),
        pytest.param(["--format", "xml"], id="format"),
        pytest.param(["--csv", "--format", "json"], id="two formats"),
        pytest.param(["-c", "op,,layer"], id="empty name"),
        pytest.param(["-q", "-v"], id="quiet and verbose"),
        pytest.param(["--rank", "0", "--rank", "1"], id="an option twice"),
    ],
)
def test_what_the_parser_refuses_is_exit_code_2(
    options: list[str], invoke: Callable[..., Any]
) -> None:
    result = invoke("prof", "x", *options)

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("pyprof2 prof: ")
    assert result.err.endswith("; 'pyprof2 prof --help' lists the options\n")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("form", ["table", "csv", "json", "parquet"])
def test_a_file_is_written_whole_and_not_overwritten(
    form: str, invoke: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "out"
    call = ("prof", "x", "--format", form, "-o", path)

    assert (invoke(*call).code, invoke(*call, "--force").code) == (0, 0)
    refused = invoke(*call)

    assert refused.code == 1
    assert refused.err == f"pyprof2: {path}: exists; give another name, or --force to replace it\n"
    assert path.stat().st_size > 100
    assert list(tmp_path.iterdir()) == [path]


def test_the_header_is_bold_on_a_terminal_and_never_in_a_file(
    invoke: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.txt"
    monkeypatch.setattr("pyprof2.reports.cells.bold", lambda header: f"**{header}**")
    invoke("prof", "x", "-o", path)

    assert "**" not in path.read_text(encoding="utf-8")
    assert invoke("prof", "x").out.count("**") == 2


def test_csv_in_a_file_is_csv_on_stdout(invoke: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    invoke("prof", "x", "--csv", "-o", path)

    assert path.read_text(encoding="utf-8") == invoke("prof", "x", "--csv").out


@pytest.mark.parametrize(
    ("place", "message"),
    [
        pytest.param(".", "is a directory; name a file", id="directory"),
        pytest.param("no/x.csv", "there is no directory", id="no directory"),
    ],
)
def test_an_output_that_cannot_be_is_one_line(
    place: str, message: str, invoke: Callable[..., Any], tmp_path: Path
) -> None:
    result = invoke("prof", "x", "-o", tmp_path / place)

    assert result.code == 1
    assert message in result.err
    assert result.err.count("\n") == 1


def test_without_a_gpu_the_heading_counts_op_calls(
    invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    use_run(profile_rows({"op": "aten::mm", "dur_ns": 5000}), no_gpu=True)

    heading = invoke("prof", "x").lines[0]

    assert heading == "device CPU | steps none | op calls 1 in 5.000 us"


def test_names_that_try_to_be_more_than_text_come_out_as_text(
    invoke: Callable[..., Any], use_run: Callable[..., Any], tmp_path: Path
) -> None:
    evil = '\x1b[31mred\n"x",=1+1\t<b>\u202ebidi'
    use_run(profile_rows({"kernel_short": evil, "op": evil}))
    columns = ("-c", "op,kernel_short")

    table = invoke("prof", "x", "-w", 200, *columns)
    as_csv = invoke("prof", "x", "--csv", *columns)
    as_json = invoke("prof", "x", "--format", "json", *columns)
    invoke("prof", "x", "-o", tmp_path / "x.csv", *columns)

    shown = r'\x1b[31mred\n"x",=1+1\t<b>\u202ebidi'
    assert table.lines[5].split("  ")[0] == shown
    assert read_csv(as_csv.out)[0]["op"] == shown
    assert json.loads(as_json.out)[0]["op"] == evil
    assert read_csv((tmp_path / "x.csv").read_bytes().decode())[0]["op"] == evil
    for printed in (table, as_csv, as_json):
        assert printed.out.replace("\n", "").isprintable()


def test_an_int64_survives_every_format(
    invoke: Callable[..., Any], use_run: Callable[..., Any], tmp_path: Path
) -> None:
    big = 2**63 - 1
    use_run(profile_rows({"launch_ns": big, "op": "a"}))
    path = tmp_path / "x.parquet"
    columns = ("-c", "launch_ns")
    invoke("prof", "x", "--format", "parquet", "-o", path, *columns)

    assert invoke("prof", "x", "--csv", *columns).lines[1] == str(big)
    assert json.loads(invoke("prof", "x", "--format", "json", *columns).out) == [{"launch_ns": big}]
    assert pd.read_parquet(path)["launch_ns"].tolist() == [big]
    assert invoke("prof", "x", *columns).lines[5].split() == [str(big)]


def test_without_options_the_top_ops_come_first(
    invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    use_run(profile_rows(*({"op": f"op{i:02}", "dur_ns": 100 - i} for i in range(25))))

    result = invoke("prof", "x")

    assert [line.split()[0] for line in result.lines[5:8]] == ["op00", "op01", "op02"]
    assert "20 of 25 rows; more with --top N, all with --csv" in result.lines
    assert result.lines[-1].endswith("all kernels in order: --by kernel")


def test_where_few_kernels_have_an_op_the_answer_is_by_their_names(
    invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    rows = ({"op": "aten::mm", "dur_ns": 49}, {"kernel": "gemm", "dur_ns": 51})
    use_run(profile_rows(*rows))

    result = invoke("prof", "x")

    assert result.lines[3].split()[0] == "kernel"
    assert "only 49.0 % of the time belongs to an op" in result.out


@pytest.mark.parametrize(
    ("options", "first_header", "rows"),
    [
        pytest.param(["-c", "op,time_ns"], "op", 1, id="columns of ops"),
        pytest.param(["--sort", "mean us"], "op", 1, id="header of a sum"),
        pytest.param(["-c", "op,dur_us"], "op", 2, id="a column of kernels"),
        pytest.param(["-c", "id,op"], "id", 2, id="header of a kernel"),
        pytest.param(["--sort", "launch_ns"], "id", 2, id="sorted by a column of kernels"),
        pytest.param(["--pyprof"], "Idx", 0, id="PyProf"),
    ],
)
def test_columns_say_what_the_rows_are(
    options: list[str], first_header: str, rows: int, invoke: Callable[..., Any]
) -> None:
    result = invoke("prof", "x", *options)

    assert result.lines[3].split()[0] == first_header
    assert sum("aten::mm" in line.split() for line in result.lines) == rows


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("id", "kernel_id"), ("dur us", "dur_us"), ("share %", "share_pct"), ("TC", "tensor_core"),
        ("TFLOP/s", "tflops"), ("gb/s", "gbps"), ("GFLOP", "flops"), ("MB", "bytes"),
        ("sil ns", "sil"),
    ],
)  # fmt: skip
def test_a_header_is_accepted_as_a_name(header: str, name: str, invoke: Callable[..., Any]) -> None:
    call = ("prof", "x", "--by", "kernel", "--csv", "-c")

    assert invoke(*call, header).out == invoke(*call, name).out
    assert invoke(*call, header).lines[0] == f'"{name}"'


def test_several_keys_sort_the_first_one_first(invoke: Callable[..., Any]) -> None:
    result = invoke("prof", "x", "--csv", "-c", "step,dur_ns", "--sort", "+step,dur_ns")

    assert result.lines[1:] == ["1,4000", "1,1000", "2,3000", ",2000"]


@pytest.mark.parametrize(
    ("options", "time_ns"),
    [
        pytest.param(["--direction", "forward"], 4000, id="direction"),
        pytest.param(["--direction", "forward,backward"], 7000, id="directions"),
        pytest.param(["--direction", "(none)"], 3000, id="no direction"),
        pytest.param(["--category", "memcpy"], 2000, id="category"),
        pytest.param(["--stream", "7"], 7000, id="stream"),
        pytest.param(["--kernel", "GEMM"], 0, id="a capital means itself"),
        pytest.param(["--kernel", "MEMCPY"], 0, id="so it is not found"),
        pytest.param(["--kernel", r"memcpy\SHtoD|memcpy\s"], 0, id="a capital beside an escape"),
        pytest.param(["--kernel", r"memcpy\Whtod"], 2000, id="any case, escapes are no capitals"),
    ],
)
def test_a_selection_keeps_what_fits(
    options: list[str], time_ns: int, invoke: Callable[..., Any]
) -> None:
    result = invoke("prof", "x", "--csv", "-c", "dur_ns", *options)

    assert sum(map(int, result.lines[1:])) == time_ns


def test_steps_come_in_their_order(invoke: Callable[..., Any], use_run: Callable[..., Any]) -> None:
    use_run(profile_rows(*({"step": step, "dur_ns": 10 + step} for step in (2, 10, 1))))

    result = invoke("prof", "x", "--by", "step", "--csv", "-c", "step")

    assert result.lines[1:] == ["1", "2", "10"]


def test_an_axis_without_keys_names_those_that_have_some(invoke: Callable[..., Any]) -> None:
    result = invoke("prof", "x", "--by", "source")

    assert "no source is known of these kernels (see 'check'); there is --by name," in result.out


@pytest.mark.parametrize(
    ("name", "start"), [("x.csv", '"kernel_id"'), ("x.json", "[\n{"), ("x.md", "**x**\n")]
)
def test_the_name_of_the_file_says_its_format(
    name: str, start: str, invoke: Callable[..., Any], tmp_path: Path
) -> None:
    invoke("prof", "x", "-o", tmp_path / name)

    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


def test_markdown_is_a_table_whose_text_stays_text(
    invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    use_run(profile_rows({"op": "a|<b>*c*", "dur_ns": 5000}))

    result = invoke("prof", "x", "--by", "op", "-c", "op,time_ns", "--format", "markdown")

    cells = [[cell.strip() for cell in line.split(" | ")] for line in result.lines[-4:]]
    assert cells == [
        ["| op", "time us |"],
        ["|:--------------|----------:|"],
        [r"| a\|\<b\>\*c\*", "5.000 |"],
        ["| **total**", "**5.000** |"],
    ]


def test_a_spreadsheet_computes_nothing_of_safe_csv(
    invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    texts = ("=1+1", "+1", "-1", "@SUM(A1)", "aten::mm")
    use_run(profile_rows(*({"op": text, "dur_ns": 1} for text in texts)))
    call = ("prof", "x", "--csv", "-c", "op")

    assert invoke(*call, "--csv-safe").lines[1:] == [
        '"\'=1+1"', '"\'+1"', '"\'-1"', '"\'@SUM(A1)"', '"aten::mm"',
    ]  # fmt: skip
    assert invoke(*call).lines[1:] == [f'"{text}"' for text in texts]


@pytest.mark.parametrize("form", ["table", "csv", "json", "parquet", "markdown"])
def test_a_device_as_output_is_written_into(form: str, invoke: Callable[..., Any]) -> None:
    assert invoke("prof", "x", "--format", form, "-o", "/dev/null", "--force").code == 0
    assert Path("/dev/null").is_char_device()


ALGORITHM = "algorithm: Winograd's F(4×4, 3×3), up to 4 times fewer flops"
CACHE = "l2: its bytes fit in the L2 cache, whose bandwidth is its roof"


@pytest.fixture
def flagged(use_run: Callable[..., Any]) -> None:
    """Two rows whose rates are above a roof, each for another reason, and one below."""
    facts = {"tflops": 25.0, "gbps": 4000.0, "flops": 25_000_000, "bytes": 4_000_000}
    use_run(
        profile_rows(
            facts | {"op": "conv", "roofline_flag": ALGORITHM},
            facts | {"op": "copy", "roofline_flag": CACHE},
            facts | {"op": "mm"},
        )
    )


@pytest.mark.usefixtures("flagged")
@pytest.mark.parametrize("axis", ["kernel", "op"])
def test_a_rate_above_its_roof_is_marked_and_a_note_says_why(
    invoke: Callable[..., Any], axis: str
) -> None:
    columns = "op,tflops,gbps"
    lines = invoke("prof", "x", "--by", axis, "-c", columns).lines
    cells = {line.split()[0]: line.split()[1:] for line in lines if line[:4] in
             ("conv", "copy", "mm  ")}  # fmt: skip

    assert cells == {
        "conv": ["*25.0", "4000"], "copy": ["25.0", "*4000"], "mm": ["25.0", "4000"]
    }  # fmt: skip
    assert lines[-2:] == [f"* {ALGORITHM}", f"* {CACHE}"]


@pytest.mark.usefixtures("flagged")
def test_a_mark_that_is_not_seen_has_no_note(invoke: Callable[..., Any]) -> None:
    out = invoke("prof", "x", "-c", "op,gbps", "--top", "1").out

    assert "*" not in out


@pytest.mark.usefixtures("flagged")
def test_machine_formats_have_the_flag_and_no_mark(invoke: Callable[..., Any]) -> None:
    records = json.loads(invoke("prof", "x", "--format", "json").out)

    assert [record["roofline_flag"] for record in records] == [ALGORITHM, CACHE, None]
    assert [record["tflops"] for record in records] == [25.0] * 3


@pytest.mark.parametrize("options", [[], ["--by", "kernel"], ["--csv"]])
def test_what_is_wrong_with_the_recording_is_said_beside_the_profile(
    options: list[str], invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    use_run(profile_rows({}), warnings=["a", "b\x1b", "c", "d", "e"])

    result = invoke("prof", "x", *options)

    assert result.err.splitlines() == [
        "pyprof2: x: a", r"pyprof2: x: b\x1b", "pyprof2: x: c",
        "pyprof2: 2 more, and what to do: pyprof2 check x",
    ]  # fmt: skip
    assert invoke("-q", "prof", "x", *options).err == ""


def test_the_axis_of_kernel_names_has_the_name_of_its_column_too(
    invoke: Callable[..., Any],
) -> None:
    asked = [
        ["--by", "kernel_name", "-c", "kernel_name,time_ns"],
        ["--by", "name", "-c", "name,time_ns"],
        ["--by", "name", "-c", "kernel,time_ns"],
    ]
    found = [invoke("prof", "x", *options, "--format", "csv").out for options in asked]

    assert read_csv(found[0])[0] == {"kernel": "void gemm<float>(int)", "time_ns": "7000"}
    assert found == [found[0]] * 3
    every = read_csv(invoke("prof", "x", "-c", "kernel_name", "--format", "csv").out)
    names = ["void gemm<float>(int)", "void add", "void gemm<float>(int)", "Memcpy HtoD"]
    assert [row["kernel"] for row in every] == names
