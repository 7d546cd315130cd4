"""For the Trainer of Hugging Face."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from pyprof2.integrations.recording import TrainerRecording

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.integrations.recording import Steps


class RecordCallback(TrainerCallback):
    """Records some steps of a training, writes their store, and prints their summary.

    ::

        trainer = Trainer(model, args, train_dataset=data, callbacks=[RecordCallback((3, 6))])

    A step is what `max_steps` counts: with gradient accumulation it has several batches. After a
    checkpoint the numbers go on where it ends.
    """

    def __init__(
        self, steps: Steps | None = None, out: Path | str | None = None, *, force: bool = False
    ) -> None:
        """Prepare, as `pyprof2.record` does.

        Args:
            steps: which; by default those that the environment variable `PYPROF2` asks for.
            out: the name of what is written, as of `pyprof2.record`.
            force: replace what is there of that name.
        """
        self._recording = TrainerRecording(steps, out, force=force)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Begin with the step that comes first."""
        self._recording.begin(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """End, if the training ends before the last step that is wanted."""
        self._recording.finish()
