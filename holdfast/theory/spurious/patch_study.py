"""PDE's synthetic study: train the cubic network on patches by a schedule, and see which feature its filters hold.

Every row of the paper's Table 1 is a schedule. Plain training is one expansion to all data; PDE is a warm-up on a
balanced set and several small expansions; "Warmup+All" is a warm-up and one expansion to all data. Training is on full
batches and in closed form, so a row takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from holdfast.data.sets.images.patches import PatchData
from holdfast.models.networks.cubic import CubicCNN
from holdfast.models.registry import build
from holdfast.spurious.reweighting.balancing import balanced_subset
from holdfast.spurious.reweighting.pde import Expansion, draw_expansion
from holdfast.streams import torch_stream
from holdfast.theory.spurious.cubic import Filters, PatchSample, feature_probes, loss, scores
from holdfast.theory.spurious.momentum import HeavyBall, buffer_alignment

#: What becomes of momentum when the warm-up ends: buffers are kept, are cleared, or there is none from then on.
Reset = Literal["keep", "zero_buffers", "no_momentum"]


@dataclass(frozen=True)
class Schedule:
    """How a network of the study is trained.

    Attributes:
        rate: learning rate of the heavy ball.
        momentum: its momentum.
        warmup_steps: steps on a balanced set; 0 for none.
        expansions: how many examples each expansion adds; none for all that are left.
        expansion_steps: steps after each expansion.
        draw: how expansions are drawn, see `draw_expansion`; ``ordered`` takes cell by cell, as the released program.
        reset: what becomes of momentum when the warm-up ends.
    """

    rate: float
    momentum: float
    warmup_steps: int = 0
    expansions: Sequence[int | None] = ()
    expansion_steps: int = 0
    draw: Expansion = "uniform"
    reset: Reset = "keep"


def train_on_patches(data: PatchData, model: str, schedule: Schedule, seed: int) -> dict[str, float]:
    """Train one network of the study and report how it fares and what its filters hold.

    Args:
        data: what to draw training, validation and test examples from.
        model: ``cubic`` for the released form of the network, ``cubic-pure`` for the paper's.
        schedule: how to train.
        seed: of the network's start and of the draws from the training set.

    Returns:
        In percent ``worst_pooled`` (test examples whose attribute disagrees with the label, both cells together),
        ``worst_cell`` (the lowest of the four cells), ``average`` and ``gap`` (average less worst_pooled); ``loss`` on
        the set trained on last; ``core_probe`` and ``spurious_probe``, and both before training with the prefix
        ``start_``. With a warm-up, all of these at its end with the prefix ``warmup_``; what its momentum buffer
        holds, ``warmup_buffer_core``, ``warmup_buffer_spurious`` and ``warmup_buffer_lowest``; and
        ``selected_worst_pooled``, that of the stage with the best worst group on validation data, the first on ties.
    """
    train, validation, test = (PatchSample.of(data.draw(part)) for part in ("train", "validation", "test"))
    train = train.take(torch.argsort(train.cells, stable=True))
    network = build(model, (3, data.d), 2, seed=seed)
    assert isinstance(network, CubicCNN)
    descent = HeavyBall(Filters.of(network), schedule.rate, schedule.momentum)
    start = feature_probes(descent.filters.weights, train.core, train.spurious)
    metrics = {"start_core_probe": start.core, "start_spurious_probe": start.spurious}
    current = torch.zeros(len(train), dtype=torch.bool)
    stages: list[dict[str, float]] = []
    on_validation: list[float] = []

    def train_stage(steps: int) -> None:
        trained_on = train.take(current)
        descent.run(trained_on, steps)
        stages.append(_scored(descent.filters, test) | {"loss": loss(descent.filters, trained_on)})
        on_validation.append(_scored(descent.filters, validation)["worst_pooled"])

    if schedule.warmup_steps:
        current = balanced_subset(train.cells, torch_stream(seed, "patch-study", "balanced"))
        train_stage(schedule.warmup_steps)
        buffer = buffer_alignment(descent.buffer.weights, train.core, train.spurious)
        metrics |= {f"warmup_{name}": value for name, value in stages[0].items()}
        metrics |= {
            "warmup_buffer_core": buffer.core,
            "warmup_buffer_spurious": buffer.spurious,
            "warmup_buffer_lowest": buffer.core_lowest,
        }
        if schedule.reset != "keep":
            descent.forget()
        if schedule.reset == "no_momentum":
            descent.momentum = 0.0
    for number, added in enumerate(schedule.expansions):
        unused = torch.nonzero(~current)[:, 0]
        stream = torch_stream(seed, "patch-study", "expansion", number)
        current[draw_expansion(schedule.draw, unused, train.cells, added, stream)] = True
        train_stage(schedule.expansion_steps)
    if schedule.warmup_steps:
        metrics["selected_worst_pooled"] = stages[on_validation.index(max(on_validation))]["worst_pooled"]
    return metrics | stages[-1]


def _scored(filters: Filters, sample: PatchSample) -> dict[str, float]:
    """Accuracies in percent and probes."""
    right = 100.0 * (scores(filters, sample) * sample.labels > 0)
    worst, average = float(right[~sample.aligned].mean()), float(right.mean())
    probes = feature_probes(filters.weights, sample.core, sample.spurious)
    return {
        "worst_pooled": worst,
        "worst_cell": min(float(right[sample.cells == cell].mean()) for cell in set(sample.cells.tolist())),
        "average": average,
        "gap": average - worst,
        "core_probe": probes.core,
        "spurious_probe": probes.spurious,
    }
