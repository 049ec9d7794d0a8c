"""Where training stands: the one notion of time that policies, schedules and checkpoints share."""

from __future__ import annotations

from typing import NamedTuple


class Clock(NamedTuple):
    """Position of a training run, counted from 0.

    Attributes:
        epoch: epochs completed.
        step: optimizer steps completed since the start of the run.
        step_in_epoch: optimizer steps completed since the start of the epoch.
        stage: how often training was started again. For a policy in a chain: by itself and by those after it.
        stage_began: the epoch at which the current stage began.
        stage_step: optimizer steps completed since then.
    """

    epoch: int = 0
    step: int = 0
    step_in_epoch: int = 0
    stage: int = 0
    stage_began: int = 0
    stage_step: int = 0

    @property
    def stage_epoch(self) -> int:
        """Epochs completed since training last started."""
        return self.epoch - self.stage_began

    @property
    def starts_epoch(self) -> bool:
        """An epoch is about to start."""
        return self.step_in_epoch == 0

    @property
    def starts_stage(self) -> bool:
        """Training is about to start, or to start again."""
        return self.starts_epoch and self.stage_epoch == 0

    @property
    def starts_run(self) -> bool:
        """Nothing has been trained yet."""
        return self.step == 0 and self.epoch == 0

    def after_step(self) -> Clock:
        """The clock one optimizer step later."""
        epoch, step, step_in_epoch, stage, began, stage_step = self
        return Clock(epoch, step + 1, step_in_epoch + 1, stage, began, stage_step + 1)

    def after_epoch(self, unreported_steps: int = 0) -> Clock:
        """The clock at the start of the next epoch.

        Args:
            unreported_steps: steps of this epoch that were not counted one by one.
        """
        return self._replace(
            epoch=self.epoch + 1,
            step=self.step + unreported_steps,
            step_in_epoch=0,
            stage_step=self.stage_step + unreported_steps,
        )

    def after_restart(self) -> Clock:
        """The clock at the start of the next stage."""
        return self._replace(stage=self.stage + 1, stage_began=self.epoch, stage_step=0)
