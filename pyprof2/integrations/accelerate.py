"""For loops with an Accelerator."""

from __future__ import annotations

from typing import Any, Final, Self

from accelerate.tracking import GeneralTracker

from pyprof2.integrations.recording import RecordsTraining


class RecordTracker(RecordsTraining, GeneralTracker):
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
    begins_when_made = True

    @property
    def tracker(self) -> Self:
        """The tracker itself."""
        return self

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Take the configuration of the training, which is not recorded."""

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        """Take what the training logs, which is not recorded."""

    def finish(self) -> None:
        """End, if the training ends before the last step that is wanted."""
        self.end_recording()
