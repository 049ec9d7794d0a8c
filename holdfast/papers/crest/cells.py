"""What the cells of CREST's chapter compute: training under a budget of steps, and how hard the chosen examples are.

Every method is only another policy in the same loop, so steps, schedule, augmentation and evaluation are shared by
construction. Clocks run during training and choosing, not during evaluation, and count the processor's seconds: a cell
has one thread, so they are those of a quiet machine whatever else runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.coresets import Crest, Forgetting
from holdfast.coresets.baselines.subset import SubsetPolicy
from holdfast.data import Examples, Splits
from holdfast.data.transforms import Compose, RandomCrop, RandomFlip
from holdfast.models.registry import build
from holdfast.papers.common.cells import pinned_method, pinned_splits
from holdfast.papers.engine.pins import pinned
from holdfast.papers.engine.witness import tell
from holdfast.streams import derive_seed, torch_stream
from holdfast.training import Curator, Policy
from holdfast.training.evaluation.evaluation import predict
from holdfast.training.method import as_method
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.objective import Forward
from holdfast.training.policy import Uniform
from holdfast.training.settings import Training, build_optimizer

AUGMENT = Compose((pinned(RandomCrop, margin="reflect"), pinned(RandomFlip)))
_WARM_UP, _CUTS = 0.1, (0.6, 0.85)


def train_on_budget(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Train under a budget of steps and report accuracy, work and time.

    Args:
        settings: ``data`` (name and options), ``pool`` (average images over so many pixels), ``copies`` (replace the
            training set by so many copies of a random part of it), ``redundant`` (keep a share that is ``distinct``
            and replace the rest by copies of some ``sources``), ``imbalance`` (how many times the first class is as
            large as the last, the others in between), ``model``, ``full_epochs``, ``budget`` (share of the
            full number of steps), ``cut`` (follow the full schedule and stop), ``batch_size``, ``learning_rate``,
            ``weight_decay``, ``method`` and ``options``; ``then``, a method for the second half.
        seed: of everything.

    Returns:
        ``accuracy`` in percent on the test set, ``steps``, ``updates`` (choices made) and those of each quarter,
        ``checks``, ``seconds`` and of those ``choosing``; of methods that choose, how many examples went ``forward``
        and ``backward`` for it per example trained on; of CREST ``pool`` (share left) and ``interval`` at the end, and
        ``used``, the share of the mini-batches it chose that were trained on.
    """
    splits = load_splits(settings, seed)
    model = model_of(settings, splits, seed)
    total, optimizer = steps_of(settings, len(splits.train)), optimizer_of(model, settings)
    policies = {0: pinned_method(settings["method"], {settings["method"]: settings.get("options", {})})}
    if "then" in settings:
        policies[total // 2] = pinned_method(settings["then"], {settings["then"]: settings.get("then_options", {})})
    started, began = time.process_time(), time.perf_counter()
    used = dict[str, float]()
    for (first, policy), last in zip(policies.items(), (*list(policies)[1:], total), strict=True):
        trained = run_steps(model, splits, policy, settings, seed=seed, first=first, last=last, optimizer=optimizer)
        if isinstance(policy, Crest):
            used["used"] = share_used(policy, trained)
    seconds = time.process_time() - started
    work = _work(policies, settings, total)
    work["choosing"] *= seconds / (time.perf_counter() - began)
    tell("work", {name: work[name] for name in ("updates", "forward", "checks")})
    accuracy = (predict(model, splits.test).predicted == splits.test.labels).float().mean()
    return {"accuracy": 100 * float(accuracy), "steps": total, "seconds": seconds, **work, **used}


def share_used(policy: Crest, trained: Sequence[Tensor]) -> float:
    """Of the mini-batches that were chosen, the share that was trained on; two never have the same examples in order.

    Args:
        policy: that chose.
        trained: positions of the examples of each step. After its last choice was used up, a lazy policy chooses none.
    """
    chosen = policy.accounts.selections
    last = chosen[-1]["step"] + chosen[-1]["coresets"] * policy.uses if policy.algorithm == "lazy" else len(trained)
    distinct = {tuple(positions.tolist()) for positions in trained[: int(last)]}
    return min(len(distinct) / sum(record["coresets"] for record in chosen), 1.0)


def difficulty_of_choices(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """How hard the examples are that are trained on, by forgetting scores of a full training.

    Args:
        settings: as for `train_on_budget`, with ``methods``: options by row, of CREST, or ``null`` for random draws.
        seed: of everything.

    Returns:
        For each row ``ROW/third 1`` to ``3``, the mean score of what is trained on in each third of the steps, and
        ``ROW/selected``, the share of the training set that is ever trained on; ``mean`` of all scores.
    """
    splits = load_splits(settings, seed)
    train = splits.train
    forgetting, model = Forgetting(len(train)), model_of(settings, splits, seed)
    full, per_epoch = {**settings, "budget": 1.0}, len(train) // settings["batch_size"]

    def record(step: int) -> None:
        if step % per_epoch == 0:
            forgetting.record(ModelOutputs(model, train).predictions() == train.labels)

    run_steps(model, splits, Uniform(), full, seed=seed, last=steps_of(full, len(train)), after=record)
    scores = forgetting.scores.float()
    tell("scores", scores)
    metrics = {"mean": float(scores.mean())}
    total = steps_of(settings, len(train))
    for row, options in settings["methods"].items():
        fresh, policy = model_of(settings, splits, seed), Uniform() if options is None else pinned(Crest, **options)
        trained = run_steps(fresh, splits, policy, settings, seed=seed, last=total)
        for third, part in enumerate(torch.tensor_split(torch.arange(len(trained)), 3), 1):
            metrics[f"{row}/third {third}"] = float(scores[torch.cat([trained[step] for step in part])].mean())
        metrics[f"{row}/selected"] = len(torch.unique(torch.cat(trained))) / len(train)
    return metrics


def load_splits(settings: Mapping[str, Any], seed: int) -> Splits:
    """The data of a cell, pooled and repeated as it asks."""
    data = dict(settings["data"])
    splits = pinned_splits(data.pop("name"), **data)
    pool, copies = settings.get("pool", 1), settings.get("copies", 1)
    if pool > 1:
        splits = Splits(splits.name, *(_pooled(part, pool) for part in (splits.train, splits.validation, splits.test)))
    if copies > 1:
        n = len(splits.train)
        originals = torch.randperm(n, generator=torch_stream(seed, "copies"))[: n // copies]
        splits = Splits(splits.name, _repeated(splits.train, originals.repeat(copies)), splits.validation, splits.test)
    rows = _chosen_rows(settings, splits.train.labels, seed)
    if rows is not None:
        splits = Splits(splits.name, _repeated(splits.train, rows), splits.validation, splits.test)
    return splits


def _chosen_rows(settings: Mapping[str, Any], labels: Tensor, seed: int) -> Tensor | None:
    """Which images a redundant or imbalanced training set is made of; none for all of them as they are."""
    n = len(labels)
    if "redundant" in settings:
        order = torch.randperm(n, generator=torch_stream(seed, "redundant"))
        distinct, sources = round(settings["redundant"]["distinct"] * n), settings["redundant"]["sources"]
        few = order[distinct : distinct + sources]
        return torch.cat([order[:distinct], few.repeat(math.ceil((n - distinct) / sources))[: n - distinct]])
    if "imbalance" in settings:
        order = torch.randperm(n, generator=torch_stream(seed, "imbalance"))
        classes = int(labels.max()) + 1
        parts = []
        for label in range(classes):
            members = order[labels[order] == label]
            parts.append(members[: max(1, round(len(members) * settings["imbalance"] ** (-label / (classes - 1))))])
        return torch.cat(parts)
    return None


def steps_of(settings: Mapping[str, Any], n: int) -> int:
    """How many steps the budget allows."""
    full = int(settings["full_epochs"]) * math.ceil(n / int(settings["batch_size"]))
    return max(1, round(float(settings["budget"]) * full))


def run_steps(
    model: nn.Module,
    splits: Splits,
    policy: Policy,
    settings: Mapping[str, Any],
    *,
    seed: int,
    last: int,
    first: int = 0,
    optimizer: torch.optim.Optimizer | None = None,
    after: Callable[[int], None] | None = None,
) -> list[Tensor]:
    """Train from step `first` to step `last` of the budget's schedule.

    Args:
        model: trained in place.
        splits: the data.
        policy: what is trained on.
        settings: of the cell.
        seed: of the draws.
        last: where to end, in steps of the budget.
        first: where to begin.
        optimizer: one that has made the steps before `first`; a new one by default.
        after: called with the number of steps made, after each of them.

    Returns:
        Positions of the examples of each step.
    """
    budget = steps_of(settings, len(splits.train))
    schedule = budget / settings["budget"] if settings.get("cut") else budget
    optimizer = optimizer or optimizer_of(model, settings)
    curator = pinned(
        Curator,
        examples=splits.train,
        policy=policy,
        batch_size=settings.get("draws_per_step", settings["batch_size"]),
        seed=derive_seed(seed, "from", first),
        augment=AUGMENT if settings.get("augment", True) else None,
        drop_last=True,
        validation=splits.validation,
    )
    objective, trained, losses = as_method(policy).objective, list[Tensor](), list[Tensor]()
    objective.prepare(splits.train)
    model.train()
    for step, batch in enumerate(curator.steps(last - first, model, optimizer), first):
        for group in optimizer.param_groups:
            group["lr"] = settings["learning_rate"] * rate_factor(step / schedule, 1 / schedule)
            group["lr"] *= curator.learning_rate_scale
        loss = objective(Forward(model, batch, weighted=curator.weighted, clock=curator.clock, precision="fp32"))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        trained.append(batch.positions)
        losses.append(loss.detach())
        if after is not None:
            after(step + 1)
    tell("loss", map(float, losses))
    tell("weights", model)
    return trained


def rate_factor(progress: float, step: float) -> float:
    """A linear warm-up over the first tenth, then a tenth of the rate at 60 % and again at 85 %.

    Example:
        >>> [round(rate_factor(progress, 0.001), 3) for progress in (0.049, 0.3, 0.7, 0.9)]
        [0.5, 1.0, 0.1, 0.01]
    """
    if progress < _WARM_UP:
        return min(1.0, (progress + step) / _WARM_UP)
    return float(0.1 ** sum(progress >= cut for cut in _CUTS))


def _work(policies: Mapping[int, Policy], settings: Mapping[str, Any], steps: int) -> dict[str, float]:
    """What choosing took, by policies and the steps they begin at; zeros where nothing is chosen."""
    choosing = {
        first: policy.accounts for first, policy in policies.items() if isinstance(policy, Crest | SubsetPolicy)
    }
    selections = [first + record["step"] for first, accounts in choosing.items() for record in accounts.selections]
    quarters = [sum(4 * step // steps == quarter for step in selections) for quarter in range(4)]
    metrics: dict[str, float] = {
        "updates": len(selections),
        "choosing": sum(sum(accounts.seconds.values()) for accounts in choosing.values()),
        "checks": float(sum(len(accounts.checks) for accounts in choosing.values())),
        "forward": sum(accounts.forward for accounts in choosing.values()) / (steps * settings["batch_size"]),
    }
    metrics |= {f"updates {quarter}": float(count) for quarter, count in enumerate(quarters, 1)}
    if choosing:
        metrics["backward"] = sum(accounts.backward for accounts in choosing.values()) / (
            steps * settings["batch_size"]
        )
    for policy in policies.values():
        if isinstance(policy, Crest):
            (first, *_), last = policy.accounts.selections, policy.accounts.selections[-1]
            metrics |= {"pool": last["pool"] / first["pool"], "interval": last.get("interval", 1)}
    return metrics


def model_of(settings: Mapping[str, Any], splits: Splits, seed: int) -> nn.Module:
    """The network of a cell."""
    return build(settings["model"], splits.train.input_shape, splits.train.n_classes, seed=seed)


def optimizer_of(model: nn.Module, settings: Mapping[str, Any]) -> torch.optim.Optimizer:
    """SGD with momentum, as all cells use it."""
    return build_optimizer(
        model,
        pinned(Training, learning_rate=settings["learning_rate"], weight_decay=settings["weight_decay"], momentum=0.9),
    )


def _pooled(examples: Examples, size: int) -> Examples:
    inputs = torch.cat([_gathered(examples, rows) for rows in torch.split(torch.arange(len(examples)), 4096)])
    return Examples.of(F.avg_pool2d(inputs, size), examples.labels, ids=examples.ids, class_names=examples.class_names)


def _repeated(examples: Examples, rows: Tensor) -> Examples:
    inputs = torch.cat([_gathered(examples, some) for some in torch.split(rows, 4096)])
    return Examples.of(inputs, examples.labels[rows], class_names=examples.class_names)


def _gathered(examples: Examples, rows: Tensor) -> Tensor:
    inputs = examples.inputs.gather(rows)
    assert isinstance(inputs, Tensor)
    return inputs
