"""Where training stands: the one notion of time that policies, schedules and checkpoints share."""

from __future__ import annotations

from typing import NamedTuple


class Clock(NamedTuple):
    """Position of a training run, counted from 0.

    Attributes:
        epoch: epochs completed.
        step: optimizer steps completed since the start of the run.
        step_in_epoch: optimizer steps completed since the start of the epoch.
    """

    epoch: int = 0
    step: int = 0
    step_in_epoch: int = 0

    @property
    def starts_run(self) -> bool:
        """Nothing has been trained yet."""
        return self.step == 0 and self.epoch == 0

    @property
    def starts_epoch(self) -> bool:
        """An epoch is about to start."""
        return self.step_in_epoch == 0

    def after_step(self) -> Clock:
        """The clock one optimizer step later."""
        return Clock(self.epoch, self.step + 1, self.step_in_epoch + 1)

    def after_epoch(self, unreported_steps: int = 0) -> Clock:
        """The clock at the start of the next epoch.

        Args:
            unreported_steps: steps of this epoch that were not counted one by one.
        """
        return Clock(self.epoch + 1, self.step + unreported_steps, 0)
