"""For the Trainer of Hugging Face."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from pyprof2.integrations.recording import RecordsTraining


class RecordCallback(RecordsTraining, TrainerCallback):
    """Records some steps of a training, writes their store, and prints their summary.

    ::

        trainer = Trainer(model, args, train_dataset=data, callbacks=[RecordCallback((3, 6))])

    A step is what `max_steps` counts: with gradient accumulation it has several batches. After a
    checkpoint the numbers go on where it ends.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Begin with the step that comes first."""
        self.begin_recording(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """End, if the training ends before the last step that is wanted."""
        self.end_recording()
