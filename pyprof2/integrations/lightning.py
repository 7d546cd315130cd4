"""For the Trainer of Lightning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from lightning.pytorch import Callback
except ImportError:  # its older package
    from pytorch_lightning import Callback

from pyprof2.integrations.recording import TrainerRecording

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.integrations.recording import Steps


class RecordCallback(Callback):
    """Records some steps of a training, writes their store, and prints their summary.

    ::

        trainer = lightning.Trainer(callbacks=[RecordCallback((3, 6))])

    A step ends in the step of an optimizer; several optimizers that take turns make one step.
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
        super().__init__()
        self._recording = TrainerRecording(steps, out, force=force)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 -- as it calls
        """Begin with the step that comes first."""
        # The trainer counts the steps of all optimizers.
        self._recording.begin(trainer.global_step // max(1, len(trainer.optimizers)))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 -- as it calls
        """End, if the training ends before the last step that is wanted."""
        self._recording.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """End where the training fails."""
        self._recording.finish()
