"""A curator inside Lightning: one callback, and the loader of `curated_loader`.

::

    curator = Curator(train, policy, batch_size=128, epoch_size=len(train), seed=0)
    trainer = L.Trainer(max_epochs=20, callbacks=[CuratorCallback(curator)])
    trainer.fit(module, curated_loader(curator))

    def training_step(self, batch, batch_idx):              # of the module
        losses = F.cross_entropy(self(batch.inputs), batch.labels, reduction="none")
        return (batch.weights * losses).mean()

Lightning reads the number of batches once, so the curator needs an ``epoch_size``; with
``Trainer(reload_dataloaders_every_n_epochs=1)`` it does without, because the callback makes the next epoch's plan
before Lightning asks for its length. Policies that train again from the start (SPARE, JTT) add their warm-up epochs:
``max_epochs`` is the budget plus ``curator.chain.warmup_epochs``. A policy is asked after the last epoch too, so that a
checkpoint of it can be continued with a larger ``max_epochs``.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

from torch.optim import Optimizer

from holdfast.errors import ConfigError, HoldfastWarning, MissingDependencyError
from holdfast.integrations.dataloader import (
    CuratedSampler,
    StepSampler,
    refuse_between_steps,
    require_epoch_size,
    require_step_size,
)
from holdfast.integrations.schedules import follow, snapshot
from holdfast.training.curator import Curator
from holdfast.training.gradient_order import average_in_order
from holdfast.training.ranks import lost_processes_named


def _callback_class() -> Any:
    """Lightning's, of the package that the caller has imported already where there are two."""
    for name in sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(f"{name}.callbacks").Callback
        except ImportError:
            continue
    raise MissingDependencyError(
        "CuratorCallback needs Lightning, which is not installed; pip install 'holdfast[lightning]'"
    )


_Callback: Any = _callback_class()


class CuratorCallback(_Callback):  # type: ignore[misc]
    """Runs the curator's policies between Lightning's epochs and keeps its state in Lightning's checkpoints.

    Args:
        curator: what decides; the training loader must draw from it.
    """

    def __init__(self, curator: Curator) -> None:
        self.curator = curator
        self._ahead = 0
        self._resumed = False
        self._schedules: list[dict[str, Any]] = []

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the first plan, before Lightning's loader starts to fetch."""
        curator = self.curator
        if trainer.reload_dataloaders_every_n_epochs != 1:
            require_epoch_size(
                curator,
                "Lightning reads the number of batches once (or in every epoch, with "
                "Trainer(reload_dataloaders_every_n_epochs=1))",
            )
        if trainer.overfit_batches > 0:
            raise ConfigError("overfit_batches replaces the curator's sampler; train on a subset of the examples")
        warmup = curator.chain.warmup_epochs
        if trainer.max_epochs is not None and 0 <= trainer.max_epochs <= warmup:
            raise ConfigError(
                f"max_epochs is {trainer.max_epochs} and the policies' warm-up alone takes {warmup}; "
                f"give the budget plus {warmup}"
            )
        if not self._schedules and warmup:
            self._schedules = snapshot(_schedulers(trainer))
        curator.start(pl_module, _optimizer(trainer))
        if not self._resumed:
            self._ahead = curator.clock.epoch - trainer.current_epoch
        self._resumed = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Check that Lightning's loader is the curator's and that both mean the same by a step and an epoch."""
        average_in_order(trainer.strategy.model)
        loader = trainer.train_dataloader
        sampler = getattr(loader, "sampler", None)
        if not isinstance(sampler, CuratedSampler) or sampler.curator is not self.curator:
            raise ConfigError(
                "the training loader doesn't draw from the curator; give trainer.fit(module, curated_loader(curator))"
            )
        if loader.num_workers:
            refuse_between_steps(self.curator, "the workers of Lightning's loader fetch batches ahead")
        steps = loader.batch_sampler
        if isinstance(steps, StepSampler) and (steps.fixed or trainer.accumulate_grad_batches > 1):
            require_step_size(
                self.curator,
                steps.batch_size,
                trainer.world_size,
                trainer.accumulate_grad_batches,
                "curated_loader(batch_size=...)",
            )
        if trainer.num_training_batches < len(loader):
            warnings.warn(
                f"Lightning stops after {trainer.num_training_batches} of {len(loader)} batches, so the rest of what "
                "is drawn is never seen; set the curator's epoch_size instead",
                HoldfastWarning,
                stacklevel=2,
            )
        if self.curator.clock.epoch < trainer.current_epoch + self._ahead:
            # A checkpoint made after the last batch of an epoch: Lightning takes that epoch's end as done.
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count optimizer steps, so that a checkpoint in mid-epoch continues with the next batch."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch:
            self.curator.end_step(pl_module, _optimizer(trainer))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Run the policies that are due before the next epoch."""
        requests = self.curator.end_epoch(pl_module, _optimizer(trainer))
        follow(requests, _schedulers(trainer), self._schedules)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Say in a sentence that another process has gone; torch's own message doesn't."""
        ranks = self.curator.ranks
        if ranks.count > 1 and isinstance(exception, RuntimeError):
            with lost_processes_named(ranks):
                raise exception

    def state_dict(self) -> dict[str, Any]:
        """What goes into Lightning's checkpoint."""
        return {"curator": self.curator.state_dict(), "ahead": self._ahead, "schedules": self._schedules}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where the checkpoint was made."""
        self.curator.load_state_dict(state_dict["curator"])
        self._ahead, self._schedules = state_dict["ahead"], state_dict["schedules"]
        self._resumed = True


def _optimizer(trainer: Any) -> Optimizer:
    if len(trainer.optimizers) != 1:
        raise ConfigError(
            f"the module has {len(trainer.optimizers)} optimizers and a curator drives one; "
            "return one from configure_optimizers"
        )
    optimizer = trainer.optimizers[0]
    assert isinstance(optimizer, Optimizer)
    return optimizer


def _schedulers(trainer: Any) -> list[Any]:
    return [config.scheduler for config in trainer.lr_scheduler_configs]
