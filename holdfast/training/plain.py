"""Plain training and nothing else, an epoch at a time: what audits do before they look at a model.

The same steps as those of `fit` without a method: the same mini-batches, schedule and random numbers for the same
settings and seed. Nothing is evaluated, chosen or kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from holdfast.data.examples import Examples
from holdfast.models.devices import find_device
from holdfast.streams import derive_seed
from holdfast.training.curator import Curator
from holdfast.training.events import Event, Listener
from holdfast.training.model_outputs import call
from holdfast.training.policy import Augmentation
from holdfast.training.settings import Training, build_optimizer, learning_rate_factor


def plain_epochs(
    model: nn.Module,
    train: Examples,
    settings: Training,
    epochs: int,
    *,
    augment: Augmentation | None = None,
    listeners: Sequence[Listener] = (),
) -> Iterator[int]:
    """Train plainly, and stop after each epoch.

    Args:
        model: trained in place.
        train: the training set.
        settings: how fast; its `epochs` are those that the learning rate's schedule spans, trained or not.
        epochs: how many to train.
        augment: what to do to the inputs of mini-batches.
        listeners: called with a ``start`` event and with a ``step`` event after every step.

    Yields:
        How many epochs are done, from 1.
    """
    optimizer = build_optimizer(model.to(find_device(settings.device)), settings)
    curator = Curator(train, batch_size=settings.batch_size, seed=settings.seed, augment=augment)
    state = torch.Generator().manual_seed(derive_seed(settings.seed, "fit")).get_state()
    _tell(listeners, Event("start", 0, 0, {"epochs": epochs, "examples": len(train)}))
    for epoch in curator.epochs(epochs, model, optimizer):
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * learning_rate_factor(settings, min(epoch / settings.epochs, 1.0))
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            _train_epoch(model, optimizer, curator, settings.clip_norm, listeners)
            state = torch.get_rng_state()
        yield epoch + 1


def _train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    curator: Curator,
    clip_norm: float | None,
    listeners: Sequence[Listener],
) -> None:
    model.train()
    steps, before = len(curator), curator.clock.step
    for done, batch in enumerate(curator, start=1):
        loss = F.cross_entropy(call(model, batch.inputs), batch.labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        values = {"steps_done": done, "steps_left": steps - done}
        _tell(listeners, Event("step", curator.clock.epoch, before + done, values))


def _tell(listeners: Sequence[Listener], event: Event) -> None:
    for listener in listeners:
        listener(event)
