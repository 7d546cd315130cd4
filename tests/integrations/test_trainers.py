"""Real trainings with other people's trainers, recorded from inside and under capture."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import pyprof2

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from benchmarks import real_runs

if TYPE_CHECKING:
    from benchmarks.real_runs import Outcome

ROOT: Final = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.integrations, pytest.mark.slow]


def _skip_without(name: str) -> None:
    reason = real_runs.why_not(name)
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module", params=list(real_runs.PACKAGES))
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Return what came of one of the trainings."""
    _skip_without(request.param)
    return real_runs.run(request.param, tmp_path_factory.mktemp(request.param))


def test_a_recorded_training_is_equal_in_all_bits_to_one_alone(outcome: Outcome) -> None:
    assert outcome.is_equal


def test_each_wanted_step_has_the_linear_layers_that_the_model_has(outcome: Outcome) -> None:
    assert outcome.steps == dict.fromkeys((3, 4, 5, 6), outcome.linears)


def test_the_summary_of_the_steps_is_printed(outcome: Outcome) -> None:
    assert "steps 3-6 " in outcome.summary


def test_at_least_95_percent_of_the_op_time_is_costed(outcome: Outcome) -> None:
    assert min(outcome.inside.costed, outcome.captured.costed) >= 0.95


def test_at_least_90_percent_of_the_op_time_has_a_line_of_the_trainings_own(
    outcome: Outcome,
) -> None:
    assert min(outcome.inside.own_line, outcome.captured.own_line) >= 0.9


def test_every_call_of_a_linear_layer_has_its_layer(outcome: Outcome) -> None:
    assert outcome.unlayered == 0


def train(
    folder: Path, script: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a training in a folder, which must not fail."""
    (folder / "train.py").write_text(script)
    done = subprocess.run(
        [sys.executable, *(arguments or ["train.py"])],
        cwd=folder, capture_output=True, text=True, check=False, timeout=240,
        env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def steps_of(store: Path) -> list[int]:
    return list(pyprof2.load(store).summary["steps"])


HUGGING_FACE: Final = """
import sys, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from pyprof2.integrations.transformers import RecordCallback
config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                    intermediate_size=16, max_position_embeddings=16)
data = [{"input_ids": torch.randint(0, 50, (8,)), "labels": i % 2} for i in range(40)]
def trainer(steps, **options):
    arguments = TrainingArguments(output_dir="out", max_steps=steps, per_device_train_batch_size=2,
        report_to=[], disable_tqdm=True, use_cpu=True, **options)
    return Trainer(BertForSequenceClassification(config), arguments, train_dataset=data,
                   eval_dataset=data[:4], callbacks=[RecordCallback({wanted})])
"""


def test_after_a_checkpoint_the_steps_go_on_where_it_ends(tmp_path: Path) -> None:
    _skip_without("transformers_trainer")
    script = """
trainer(4, save_strategy="steps", save_steps=4).train()
trainer(9).train(resume_from_checkpoint="out/checkpoint-4")
"""
    train(tmp_path, HUGGING_FACE.replace("{wanted}", "(5, 6)") + script)

    assert [steps_of(store) for store in tmp_path.glob("*.pyprof2")] == [[5, 6]]


def test_evaluation_between_steps_is_in_none(tmp_path: Path) -> None:
    _skip_without("transformers_trainer")
    train(
        tmp_path, HUGGING_FACE.replace("{wanted}", "(2, 3)")
        + "\ntrainer(6, eval_strategy='steps', eval_steps=1, save_strategy='no').train()",
    )  # fmt: skip

    ops = pyprof2.load(tmp_path / "train.pyprof2").ops
    linears = ops[(ops["op"] == "aten::linear") & (ops["direction"] == "forward")]
    # Six in the encoder's layer, the pooler, the classifier.
    assert linears["step"].value_counts().to_dict() == {2: 8, 3: 8}
    assert linears["step"].isna().any()


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        pytest.param("", [], id="unset: nothing"),
        pytest.param("1", [3, 4, 5, 6], id="on: what is usual"),
        pytest.param("1:2", [1, 2], id="steps: those"),
        pytest.param("0", [], id="off: nothing"),
    ],
)
def test_a_callback_without_steps_waits_for_the_variable(
    value: str, wanted: list[int], tmp_path: Path
) -> None:
    _skip_without("transformers_trainer")
    train(
        tmp_path,
        HUGGING_FACE.replace("{wanted}", "") + "\ntrainer(8, save_strategy='no').train()",
        PYPROF2=value,
    )

    assert [steps_of(store) for store in tmp_path.glob("*.pyprof2")] == ([wanted] if wanted else [])


LIGHTNING: Final = """
import lightning, torch
from pyprof2.integrations.lightning import RecordCallback
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    def training_step(self, batch, index):
        if index == 4 and {fails}: raise ValueError("of the program's own")
        for net, optimizer in zip((self.a, self.b), self.optimizers()):
            optimizer.zero_grad()
            self.manual_backward(net(batch).square().mean())
            optimizer.step()
    def configure_optimizers(self):
        return [torch.optim.SGD(net.parameters(), 0.1) for net in (self.a, self.b)]
try:
    lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[RecordCallback((2, 5))],
    ).fit(Net(), torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=2))
except ValueError as error: print(error)
"""


@pytest.mark.parametrize(("fails", "wanted"), [(False, [2, 3, 4, 5]), (True, [2, 3])])
def test_two_optimizers_of_lightning_make_one_step(
    fails: bool,  # noqa: FBT001 -- a parameter of the test
    wanted: list[int],
    tmp_path: Path,
) -> None:
    _skip_without("lightning_trainer")
    done = train(tmp_path, LIGHTNING.replace("{fails}", str(fails)))

    assert ("of the program's own" in done.stdout) == fails
    ops = pyprof2.load(tmp_path / "train.pyprof2").ops
    linears = ops[(ops["op"] == "aten::linear") & ops["step"].notna()]
    assert linears["step"].value_counts().to_dict() == dict.fromkeys(wanted, 2)


def test_every_process_of_accelerate_records_itself(tmp_path: Path) -> None:
    _skip_without("accelerate_loop")
    script = (real_runs.FOLDER / "accelerate_loop.py").read_text(encoding="utf-8")
    (tmp_path / "outcome.py").write_text((real_runs.FOLDER / "outcome.py").read_text("utf-8"))
    train(
        tmp_path, script,
        "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py", OMP_NUM_THREADS="1",
    )  # fmt: skip

    stores = sorted(path.name for path in tmp_path.glob("*.pyprof2"))
    assert stores == ["train-rank0.pyprof2", "train-rank1.pyprof2"]
    # Ten steps of two batches are five in each of two processes.
    assert [steps_of(tmp_path / store) for store in stores] == [[3, 4], [3, 4]]
