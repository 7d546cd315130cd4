"""The batch size is found wherever it stands, and only its characters are replaced."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pytest

from pyprof2.lsp import batch_size
from pyprof2.lsp.analysis import parsed
from pyprof2.lsp.positions import Text

if TYPE_CHECKING:
    from pyprof2.lsp.batch_size import Candidate


def replaced(text: Text, candidate: Candidate, batch: int) -> str:
    """Return the text with another batch size."""
    return text.replaced(candidate.start, candidate.stop, str(batch)).source


def python(source: str) -> list[Candidate]:
    text = Text(source)
    tree = parsed(source)
    assert tree is not None
    return batch_size.in_python(tree, text)


PYTHON = {
    "provider": ("def skyline_input_provider(\n  batch_size: int = «32»,  #\n): ...\n", "provider"),
    "other provider": ("def input_provider(batch_size=«32»): ...\n", "provider"),
    "parameter": ("def train(lr, *, batch_size=«32»): ...\n", "default"),
    "keyword": ("DataLoader(data, batch_size=«32», shuffle=True)\n", "loader"),
    "positional": ("torch.utils.data.DataLoader(data, «32»)\n", "loader"),
    "argparse": ('p.add_argument("-b", "--batch-size", type=int, default=«32»)\n', "argparse"),
    "constant": ("BATCH_SIZE = «32»\n", "constant"),
    "annotated": ("batch_size: int = «32»\n", "constant"),
    "walrus": ("if (bs := «32») > 4: ...\n", "constant"),
    "field": ("@dataclass\nclass C:\n    batch_size: int = «32»\n", "field"),
    "dataclasses.field": ("class C:\n    batch_size: int = field(default=«32»)\n", "field"),
    "trainer": ("TrainingArguments(per_device_train_batch_size=«32»)\n", "keyword"),
    "dict": ('config = {"lr": 1, "batch_size": «32»}\n', "key"),
    "hexadecimal": ("batch_size = «0x20»\n", "constant"),
    "underscore": ("batch_size = «1_024»\n", "constant"),
    "parentheses": ("batch_size = («32»)\n", "constant"),
    "semicolon": ("x = 1; batch_size = «32»; y = 2\n", "constant"),
    "continuation": ("batch_size = \\\n    «32»\n", "constant"),
    "emoji before": ('s = "😀"; batch_size = «32»  # 😀\n', "constant"),
    "CRLF": ("x = 1\r\nbatch_size = «32»\r\ny = 2\r\n", "constant"),
    "CR": ("x = 1\rbatch_size = «32»\ry = 2\r", "constant"),
    "form feed above": ("x = 1\n\f\nbatch_size = «32»\n", "constant"),
    "U+2028 above": ('x = "\u2028"\nbatch_size = «32»\n', "constant"),
    "byte order mark": ("\ufeffbatch_size = «32»\n", "constant"),
}  # fmt: skip


@pytest.mark.parametrize(("marked", "kind"), PYTHON.values(), ids=PYTHON)
def test_only_the_number_is_replaced(marked: str, kind: str) -> None:
    before, number, after = marked.replace("»", "«").split("«")

    (found,) = python(before + number + after)

    assert (found.kind, found.text, found.refusal) == (kind, number, "")
    assert found.value == int(number, 0)
    assert replaced(Text(before + number + after), found, 64) == f"{before}64{after}"


REFUSED = {
    "2*16": "it is computed: change it by hand",
    'int(os.environ.get("BS", 32))': "it comes from the environment: set the variable",
    "-1": "it is no number of 1 or more",
    "0": "it is no number of 1 or more",
    "True": "it is a truth value",
    "None": "it is None: the program decides",
    "32.0": "it is no whole number",
    '"32"': "it is no whole number",
}


@pytest.mark.parametrize(("value", "reason"), REFUSED.items(), ids=REFUSED)
def test_what_is_no_literal_is_refused_with_the_reason(value: str, reason: str) -> None:
    (found,) = python(f"batch_size = {value}\n")

    assert (found.text, found.value, found.refusal) == (value, None, reason)


def test_a_loader_that_is_given_a_name_says_where_to_look() -> None:
    (found,) = python("DataLoader(d, batch_size=args.batch_size)\n")

    assert found.refusal == "it is the value of args.batch_size: change it there"


@pytest.mark.parametrize(
    "source",
    ["per_device_eval_batch_size = 8\n", "def f(x=32): ...\n", "self.batch_size = batch_size\n",
     "g(batch_size=batch_size)\n", 'p.add_argument("--lr", default=32)\n', "bsx = 3\n"],
)  # fmt: skip
def test_what_only_looks_like_it_is_no_candidate(source: str) -> None:
    assert python(source) == []


def test_places_of_one_name_are_told_apart_by_what_they_are_in() -> None:
    source = "class A:\n    batch_size = 1\ndef f(batch_size=2): batch_size = 3\n"

    names = [candidate.name for candidate in python(source)]

    assert names == ["A.batch_size", "f(batch_size)", "f.batch_size"]


YAML = {
    "block": "train:\n  batch_size: «32»  # 😀 keep\n  lr: 1\n",
    "flow": "train: {lr: 1, batch-size:   «32»}\n",
    "list": "runs:\n- {bs: «32»}\n",
    "anchor without alias": "batch_size: &b «32»\n",
    "tag": "batch_size: !!int «32»\n",
    "second document": "a: 1\n---\nbatch_size: «32»\n",
    "CRLF": "a: 1\r\nbatch_size: «32»\r\n",
    "emoji before": 'a: "😀"\nbatch_size: «32»\n',
}


@pytest.mark.parametrize("marked", YAML.values(), ids=YAML)
def test_of_yaml_only_the_number_is_replaced(marked: str) -> None:
    before, number, after = marked.replace("»", "«").split("«")
    text = Text(before + number + after)

    (found,) = batch_size.in_yaml(text)

    assert (found.text, found.value) == ("32", 32)
    assert replaced(text, found, 64) == f"{before}64{after}"


@pytest.mark.parametrize(
    ("value", "reason"),
    [("yes", "it is a truth value"), ("'32'", "it is no whole number"),
     ("1.5", "it is no whole number"),
     ("-1", "it is no number of 1 or more"), ("0x20", "it is no number of 1 or more"),
     ("[1]", "it is a list or a mapping"), ("${env:BS}", "it is no whole number")],
)  # fmt: skip
def test_of_yaml_other_values_are_refused(value: str, reason: str) -> None:
    (found,) = batch_size.in_yaml(Text(f"batch_size: {value}\n"))

    assert (found.value, found.refusal) == (None, reason)


def test_an_alias_and_what_it_names_are_refused() -> None:
    found = batch_size.in_yaml(Text("batch_size: &b 32\nother: *b\ntrain:\n  bs: *b\n"))

    assert [(c.name, c.value) for c in found] == [("batch_size", None), ("train.bs", None)]
    assert {c.refusal for c in found} == {
        "it is an alias or has one: other keys would change with it"
    }


@pytest.mark.parametrize("source", ["a: [", "\tx: 1\n", "a: &b *b\n", "\x00"])
def test_yaml_that_cannot_be_read_has_none(source: str) -> None:
    assert batch_size.in_yaml(Text(source)) == []


def test_an_edit_of_a_real_file_changes_one_line() -> None:
    source = "".join(f"x{at} = {at}  # é😀\n" for at in range(50)) + "batch_size = 32\n" * 1
    (found,) = python(source)

    new = replaced(Text(source), found, 4096)

    changed = [d for d in difflib.ndiff(source.splitlines(), new.splitlines()) if d[0] in "+-"]
    assert changed == ["- batch_size = 32", "+ batch_size = 4096"]
