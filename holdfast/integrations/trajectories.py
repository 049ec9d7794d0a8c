"""Record loss trajectories inside transformers' Trainer.

::

    recorder = TrajectoryRecorder(Path("points"), tokens, every=500, key={"data": data.fingerprint})
    trainer = Trainer(model, args, train_dataset=tokens, data_collator=tokens.collate,
                      callbacks=[trajectory_callback(recorder)])
    trainer.train()
    recorder.trajectories().save(Path("trajectories.parquet"))

Points are written as they are recorded, so ``trainer.train(resume_from_checkpoint=True)`` continues with those there
are; if there is one of the checkpoint's step, the loaded model must agree with it. The training runs as it would
without the callback.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import MissingDependencyError
from holdfast.finetuning.trajectories import TrajectoryRecorder


def trajectory_callback(recorder: TrajectoryRecorder) -> Any:
    """A callback for a Trainer that records the losses of all examples when they are due.

    Args:
        recorder: what to record, how often and where.

    Raises:
        MissingDependencyError: if transformers' Trainer isn't installed.
    """
    try:
        from transformers import TrainerCallback  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingDependencyError("transformers' Trainer is not installed; pip install 'holdfast[llm]'") from error

    class TrajectoryCallback(TrainerCallback):  # type: ignore[misc]
        """Looks at all examples after every so many optimizer steps."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            recorder.check(parts["model"], state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            recorder.record(parts["model"], state.global_step)

    return TrajectoryCallback()
