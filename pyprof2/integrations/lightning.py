"""For the Trainer of Lightning."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:  # its older package
    from pytorch_lightning import Callback

from pyprof2.integrations.recording import RecordsTraining


class RecordCallback(RecordsTraining, Callback):
    """Records some steps of a training, writes their store, and prints their summary.

    ::

        trainer = lightning.Trainer(callbacks=[RecordCallback((3, 6))])

    A step ends in the step of an optimizer; several optimizers that take turns make one step.
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 -- as it calls
        """Begin with the step that comes first."""
        # The trainer counts the steps of all optimizers.
        self.begin_recording(trainer.global_step // max(1, len(trainer.optimizers)))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 -- as it calls
        """End, if the training ends before the last step that is wanted."""
        self.end_recording()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """End where the training fails."""
        self.end_recording()
