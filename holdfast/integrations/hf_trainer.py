"""A curator inside transformers' Trainer.

::

    curator = Curator(train, policy, batch_size=32, epoch_size=len(train), seed=0)
    trainer = curated_trainer(Trainer, curator)(model=model, args=TrainingArguments("out", num_train_epochs=3))
    trainer.train()                                         # or trainer.train(resume_from_checkpoint=True)

Without a ``train_dataset`` the curator's examples are trained on, whose inputs must then be named tensors; a dataset
given must have the same examples in the same order, and goes through the Trainer's own collator. The Trainer plans all
its steps before the first one, so the curator needs an ``epoch_size``. ``num_train_epochs`` is the budget plus the
warm-up epochs of policies that train again from the start (SPARE, JTT); the learning-rate schedule spans the budget and
begins anew with it.

Loss weights are applied to the cross-entropy of each example; for another loss override ``example_losses``. Policies
run when an epoch begins, not when one ends, so an epoch is evaluated and saved with the model it was trained to, and a
checkpoint says the same whether it was saved by the epoch or by the step. On several processes each gets its share of
every step from the curator, and Accelerate deals out nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from holdfast.data.examples import Examples
from holdfast.errors import CheckpointError, ConfigError, MissingDependencyError
from holdfast.integrations.checkpoints import read_curator, write_curator
from holdfast.integrations.dataloader import (
    CuratedSampler,
    Draw,
    StepSampler,
    refuse_between_steps,
    require_epoch_size,
    require_step_size,
)
from holdfast.integrations.schedules import follow, snapshot
from holdfast.training.curator import Curator
from holdfast.training.gradient_order import average_in_order
from holdfast.training.ranks import lost_processes_named

#: The column that says which example an item is.
POSITION = "holdfast_position"

#: The column with its weight in the loss.
WEIGHT = "holdfast_weight"


def curated_trainer(trainer_class: Any, curator: Curator) -> Any:
    """A Trainer class that trains on what the curator decides.

    Args:
        trainer_class: ``transformers.Trainer`` or a class derived from it.
        curator: what decides. Its ``batch_size`` is what an optimizer step sees, over all processes and accumulated
            batches.

    Returns:
        A class to be used like `trainer_class`.

    Raises:
        ConfigError: if the curator has no ``epoch_size``.
    """
    try:
        from transformers import TrainerCallback  # noqa: PLC0415
        from transformers.trainer_utils import get_last_checkpoint  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError(
            "transformers' Trainer is not installed; pip install 'holdfast[transformers]'"
        ) from error
    require_epoch_size(curator, "the Trainer plans all its steps before the first one")

    class PolicyCallback(TrainerCallback):  # type: ignore[misc]
        """Runs the policies between epochs and writes the curator beside each checkpoint."""

        def __init__(self) -> None:
            self.served = False
            self.schedule: list[dict[str, Any]] = []

        def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            warmup = curator.chain.warmup_epochs
            if state.num_train_epochs <= warmup:
                raise ConfigError(
                    f"num_train_epochs is {state.num_train_epochs} and the policies' warm-up alone takes {warmup}; "
                    f"give the budget plus {warmup}"
                )
            if warmup and not self.schedule:
                self.schedule = snapshot([parts["lr_scheduler"]])
            curator.start(parts["model"], parts["optimizer"])

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            if self.served:
                requests = curator.end_epoch(parts["model"], parts["optimizer"])
                follow(requests, [parts["lr_scheduler"]], self.schedule)
            self.served = False

        def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            # Otherwise the curator stays where the epoch begins, and the Trainer skips what a checkpoint has done.
            if curator.chain.between_steps:
                curator.end_step(parts["model"], parts["optimizer"])

        def on_epoch_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            self.served = True

        def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            curator.ranks.share_buffers(parts["model"])

        def on_save(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            if not state.is_world_process_zero:
                return
            steps = len(curator)
            remembered = {
                "curator": curator.state_dict(),
                "served": self.served or state.global_step % steps == 0,
                "schedule": self.schedule,
            }
            write_curator(Path(args.output_dir) / f"checkpoint-{state.global_step}", remembered)

    class CuratedTrainer(trainer_class):  # type: ignore[misc]
        """The Trainer with the curator's sampler, weights and checkpoints."""

        def __init__(self, *args: Any, train_dataset: Any = None, **options: Any) -> None:
            dataset = _ExamplesByName(curator.examples) if train_dataset is None else train_dataset
            super().__init__(*args, train_dataset=_WithPositions(dataset, len(curator.examples)), **options)
            self._curated = PolicyCallback()
            self.add_callback(self._curated)

        def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **options: Any) -> Any:
            if self.args.dataloader_num_workers:
                refuse_between_steps(curator, "workers of the Trainer's loader fetch batches ahead")
            require_step_size(
                curator,
                self.args.train_batch_size,
                self.args.world_size,
                self.args.gradient_accumulation_steps,
                "per_device_train_batch_size",
            )
            if curator.epoch_length > curator.batch_size and curator.epoch_length % curator.batch_size == 1:
                raise ConfigError(
                    f"epochs of {curator.epoch_length} draws leave a single one for the Trainer's last step of "
                    f"{curator.batch_size}; choose an epoch_size that is a multiple of the batch size"
                )
            folder = resume_from_checkpoint or None
            if folder is True:
                folder = get_last_checkpoint(self.args.output_dir)
                if folder is None:
                    raise CheckpointError(f"there is no checkpoint in {self.args.output_dir}; train without resuming")
            if folder is not None:
                state = read_curator(Path(folder))
                curator.load_state_dict(state["curator"])
                self._curated.served, self._curated.schedule = state["served"], state["schedule"]
            return super().train(folder, *args, **options)

        def create_scheduler(self, num_training_steps: int, *args: Any, **options: Any) -> Any:
            warmup = curator.chain.warmup_epochs * len(curator)
            return super().create_scheduler(max(num_training_steps - warmup, 1), *args, **options)

        def compute_loss(
            self,
            model: Any,
            inputs: dict[str, Any],
            return_outputs: bool = False,
            num_items_in_batch: Tensor | int | None = None,
        ) -> Any:
            inputs = dict(inputs)
            inputs.pop(POSITION, None)
            weights = inputs.pop(WEIGHT, None)
            # Without weights of the plan, a share that is smaller than others has some all the same.
            uneven = weights is not None and inputs["labels"].ndim == 1 and not bool((weights == 1).all())
            if not model.training or not (curator.weighted or uneven):
                return super().compute_loss(
                    model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch
                )
            if weights is None:
                raise ConfigError(
                    f"the plan weighs examples and the data collator dropped the column {WEIGHT}; keep it"
                )
            if self.compute_loss_func is not None:
                raise ConfigError(
                    "the plan weighs examples and compute_loss_func gives one number per batch; override "
                    "example_losses(outputs, labels) of the curated trainer instead"
                )
            outputs = model(**inputs)
            losses = self.example_losses(outputs, inputs["labels"])
            loss = (weights.to(losses) * losses).mean()
            if num_items_in_batch is not None and self.model_accepts_loss_kwargs:
                # The Trainer leaves the division by the accumulated batches to a loss that is told their size.
                loss = loss / self.current_gradient_accumulation_steps
            return (loss, outputs) if return_outputs else loss

        def example_losses(self, outputs: Any, labels: Tensor) -> Tensor:
            """The loss of each example, shape (b,): cross-entropy of the logits, smoothed as the arguments say."""
            logits = outputs["logits"] if isinstance(outputs, dict) else outputs[1]
            if logits.ndim != 2 or labels.ndim != 1:
                raise ConfigError(
                    f"the plan weighs examples and the model gives logits of shape {tuple(logits.shape)} for labels "
                    f"of shape {tuple(labels.shape)}; override example_losses(outputs, labels), one number per example"
                )
            return F.cross_entropy(logits, labels, reduction="none", label_smoothing=self.args.label_smoothing_factor)

        def training_step(self, model: Any, *args: Any, **options: Any) -> Any:
            average_in_order(model)  # before the first step there is no place at which the Trainer has wrapped it
            with lost_processes_named(curator.ranks):
                return super().training_step(model, *args, **options)

        def get_train_dataloader(self) -> DataLoader[Any]:
            """The curator's loader, already this process's share; the Trainer moves batches to the device itself."""
            args, sampler = self.args, CuratedSampler(curator)
            steps = StepSampler(
                sampler, args.train_batch_size, divides_evenly=True, from_start=curator.chain.between_steps
            )
            return DataLoader(
                self.train_dataset,
                batch_sampler=steps,
                collate_fn=self._get_collator_with_removed_columns(self.data_collator, description="training"),
                num_workers=args.dataloader_num_workers,
                pin_memory=args.dataloader_pin_memory and args.device.type != "cpu",
                persistent_workers=args.dataloader_persistent_workers,
                prefetch_factor=args.dataloader_prefetch_factor,
            )

        def _set_signature_columns_if_needed(self) -> None:
            super()._set_signature_columns_if_needed()
            self._signature_columns += [name for name in (POSITION, WEIGHT) if name not in self._signature_columns]

    CuratedTrainer.__name__ = CuratedTrainer.__qualname__ = f"Curated{trainer_class.__name__}"
    return CuratedTrainer


class _ExamplesByName(Dataset[Any]):
    """The curator's examples as the dictionaries that a Trainer's collator takes."""

    def __init__(self, examples: Examples) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, position: int) -> dict[str, Any]:
        inputs, labels = self._examples.gather(torch.tensor([position]))
        if isinstance(inputs, Tensor):
            raise ConfigError(
                "a Trainer passes inputs by name and the curator's examples are one unnamed tensor; "
                "build them with Examples.of({'pixel_values': ...}, labels), or give a train_dataset"
            )
        return {**{name: part[0] for name, part in inputs.items()}, "labels": int(labels[0])}


class _WithPositions(Dataset[Any]):
    """A dataset whose items say which example they are."""

    def __init__(self, dataset: Any, n: int) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise ConfigError(
                f"a train_dataset of type {type(dataset).__name__} has no order to draw from; give a map-style one"
            )
        if len(dataset) != n:
            raise ConfigError(
                f"train_dataset has {len(dataset)} examples and the curator {n}; give the same ones in the same order"
            )
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, draw: Draw) -> dict[str, Any]:
        return {**self._dataset[draw.position], POSITION: draw.position, WEIGHT: draw.weight}
