"""For loops with an Accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from accelerate.tracking import GeneralTracker

from pyprof2.integrations.recording import TrainerRecording

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.integrations.recording import Steps


class RecordTracker(GeneralTracker):
    """Records some steps of a training, writes their store, and prints their summary.

    ::

        accelerator = Accelerator(log_with=RecordTracker((3, 6)))

    It begins when it is made, in every process: Accelerate starts trackers in the first one alone.
    It ends at the latest with the process; in the first one with `end_training`, if `init_trackers`
    was called. A step ends where the optimizer really steps: with gradient accumulation it has
    several batches.
    """

    name: Final = "pyprof2"
    requires_logging_directory: Final = False
    main_process_only: Final = False

    def __init__(
        self, steps: Steps | None = None, out: Path | str | None = None, *, force: bool = False
    ) -> None:
        """Begin with step 0, as `pyprof2.record` does.

        Args:
            steps: which; by default those that the environment variable `PYPROF2` asks for.
            out: the name of what is written, as of `pyprof2.record`.
            force: replace what is there of that name.
        """
        super().__init__()
        self._recording = TrainerRecording(steps, out, force=force)
        self._recording.begin()

    @property
    def tracker(self) -> TrainerRecording:
        """What records."""
        return self._recording

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Take the configuration of the training, which is not recorded."""

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        """Take what the training logs, which is not recorded."""

    def finish(self) -> None:
        """End, if the training ends before the last step that is wanted."""
        self._recording.finish()
