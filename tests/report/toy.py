"""Tiny images with a shortcut (the red channel), whose class names would run if a page took them for markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn

from holdfast.data import Examples, Splits
from holdfast.training import Context, Event, Listener, Method, Plan, Policy, Run, Training, fit

SCRIPT = "<script>alert(1)</script>"
BREAKOUT = "\"'><img src=x onerror=alert(2)>"
SETTINGS = Training(epochs=4, batch_size=16, learning_rate=0.05)


def toy_images(n: int, seed: int, offset: int, names: Sequence[str] = (SCRIPT, BREAKOUT)) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    attributes = torch.where(torch.rand(n, generator=generator) < 0.8, labels, 1 - labels)
    images = 0.4 * torch.rand(n, 3, 8, 8, generator=generator)
    images[:, 0] += 0.5 * attributes.view(-1, 1, 1)
    images[:, 1, :3] += 0.15 * labels.view(-1, 1, 1)
    return Examples.of(
        images,
        labels,
        attributes=attributes,
        ids=torch.arange(n).flip(0) + offset,
        class_names=names,
        attribute_names=("dim", "red"),
    )


def toy_splits() -> Splits:
    return Splits("toy", toy_images(120, 0, 0), toy_images(60, 1, 1000), toy_images(80, 2, 2000))


def toy_model(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))


@dataclass(frozen=True)
class Shrinking(Policy):
    """Drops ten more examples every epoch."""

    name: ClassVar[str] = "shrinking"

    def due(self, clock):
        return clock.starts_epoch

    def update(self, context: Context) -> Plan:
        return Plan(copies=torch.arange(len(context.examples)) >= 10 * context.clock.epoch)


def toy_run(
    path: Path,
    method: Method | Policy | None = None,
    *,
    splits: Splits | None = None,
    settings: Training = SETTINGS,
    listeners: Sequence[Listener] = (),
) -> Run:
    """A real run, finished unless a listener stops it."""
    config = {
        "data": "toy",
        "method": "erm" if method is None else getattr(method, "name", "method"),
        "model": "linear",
        "seed": settings.seed,
        "select_by": settings.select_by,
        "remark": "a < b & c",
    }
    run = Run.create(path, config)
    fit(toy_model(), splits or toy_splits(), method, settings, run=run, listeners=listeners)
    return run


class StoppedError(Exception):
    """The plug was pulled."""


def stop_after(epochs: int) -> Listener:
    """A listener that pulls the plug at the end of an epoch."""

    def listen(event: Event) -> None:
        if event.kind == "epoch" and event.epoch + 1 == epochs:
            raise StoppedError

    return listen
