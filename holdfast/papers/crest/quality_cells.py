"""How good a choice of mini-batches is: what its gradients are like, and for how long its model of the loss holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.coresets.accounting import Accounts
from holdfast.coresets.crest.gradient_proxies import GradientProxies, gradient_proxies
from holdfast.coresets.crest.mini_batches import SubsetCandidates, mini_batch_coresets
from holdfast.coresets.crest.trust_region import TrustRegion, TrustRegionSettings
from holdfast.coresets.diagnostics import gradient, gradient_quality
from holdfast.data import Examples
from holdfast.papers.common.cells import pinned_method
from holdfast.papers.crest.cells import AUGMENT, load_splits, model_of, optimizer_of, run_steps
from holdfast.papers.engine.pins import options, pinned
from holdfast.papers.engine.witness import tell
from holdfast.primitives.similarity import LastLayerGradients
from holdfast.streams import torch_stream
from holdfast.training import Curator
from holdfast.training.policy import Uniform

#: Picks and weights of a coreset, as they are chosen and spoiled.
_KINDS = ("greedy", "unit weights", "shuffled", "random picks", "central")

#: Ways to model the loss around a point: order, what stays of the averages over time, and probes per mini-batch.
_MODELS: Mapping[str, tuple[int, tuple[float, float] | None, int]] = {
    "first order": (1, (0.9, 0.999), 1),
    "quadratic": (2, (0.9, 0.999), 1),
    "signed": (2, None, 1),
    "8 probes": (2, (0.9, 0.999), 8),
}


def gradients_of_choices(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Bias and variance of mini-batch gradients at points of a plain training, for several ways to choose them.

    Args:
        settings: as for `train_on_budget`, with ``points`` (steps to look at), ``subset`` (r) and ``draws``;
            ``statistics``, what batch norm goes by: ``running``, unless it says ``batch``, as in training; ``proxy``.
        seed: of everything.

    Returns:
        At each point, ``POINT/KIND variance``, ``bias``, ``floor`` and ``error`` relative to the whole gradient, for
        ``random m``, ``random r``, ``crest``, ``craig`` and the ``union`` of five coresets; ``POINT/epsilon``, the mean
        distance of a coreset's gradient from its subset's, of ``greedy`` picks and of what spoils them.
    """
    splits = load_splits(settings, seed)
    model, train = model_of(settings, splits, seed), splits.train
    metrics = dict[str, float]()

    def measure(point: int) -> None:
        if point not in settings["points"]:
            return
        kinds, spoiled = _gradients(model, train, settings, torch_stream(seed, "gradients", point))
        whole = gradient(model, train, torch.arange(len(train)), statistics=settings.get("statistics", "running"))
        for kind, gradients in kinds.items():
            quality = gradient_quality(gradients, whole)
            metrics.update(
                {
                    f"{point}/{kind} variance": quality.variance,
                    f"{point}/{kind} bias": quality.bias,
                    f"{point}/{kind} floor": quality.floor,
                    f"{point}/{kind} error": quality.error,
                }
            )
        for kind, distances in spoiled.items():
            metrics[f"{point}/epsilon {kind}"] = sum(distances) / len(distances) / float(whole.norm())

    run_steps(model, splits, Uniform(), settings, seed=seed, last=max(settings["points"]), after=measure)
    near_ties = ("random picks", "central")  # who is nearest to such a pick may hang on rounding
    tell("quality", {name: value for name, value in metrics.items() if not name.endswith(near_ties)})
    return metrics


def models_of_the_loss(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """By how much of the loss its models are off, the further training gets from where they were made.

    Training goes on for `length` steps on the mini-batches that were chosen at a point; there new ones are chosen and
    modelled, as often as `regions` says.

    Args:
        settings: as for `train_on_budget`, with ``start`` (plain steps before the first point), ``regions``,
            ``subset`` (r), ``coresets`` (P) and ``after``: the steps from a point at which the loss is compared.
        seed: of everything.

    Returns:
        ``MODEL after STEPS``, the mean of |predicted - true| / true over the regions, for the models of `_MODELS`.
    """
    splits = load_splits(settings, seed)
    model, train = model_of(settings, splits, seed), splits.train
    optimizer = optimizer_of(model, settings)
    run_steps(model, splits, Uniform(), settings, seed=seed, last=settings["start"], optimizer=optimizer)
    for group in optimizer.param_groups:
        group["lr"] = settings["learning_rate"]
    augment = AUGMENT if settings.get("augment", True) else None
    models = {
        name: TrustRegion(
            order=order,
            memory=memory,
            curvature_of="all",
            draws=draws,
            anchor="paired",
            checked=settings["coresets"],
        )
        for name, (order, memory, draws) in _MODELS.items()
    }
    here, accounts = pinned(TrustRegionSettings, model=model, examples=train), Accounts()
    off: dict[str, list[float]] = {f"{name} after {steps}": [] for name in models for steps in settings["after"]}
    for number in range(settings["regions"]):
        stream = torch_stream(seed, "region", number)
        batches, weights, looks = _coresets(here, settings, stream)
        for region in models.values():
            probes = [torch_stream(seed, "probe", number, place) for place in range(len(batches))]
            region.begin(here, batches, weights, proxies=looks, probes=probes, accounts=accounts)
        for step in range(1, max(settings["after"]) + 1):
            place = int(torch.randint(len(batches), (1,), generator=stream))
            inputs, labels = train.gather(batches[place])
            assert isinstance(inputs, Tensor)
            inputs = inputs if augment is None else augment(inputs, stream)
            losses = F.cross_entropy(model(inputs), labels, reduction="none")
            tell("own loss", losses.mean().item())
            optimizer.zero_grad(set_to_none=True)
            (weights[place] * losses).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if step in settings["after"]:
                for name, region in models.items():
                    off[f"{name} after {step}"].append(region.error(here, step, accounts))
    errors_by_model = {what: math.fsum(errors) / len(errors) for what, errors in off.items()}
    tell("off", errors_by_model)
    return errors_by_model


def _gradients(
    model: nn.Module, train: Examples, settings: Mapping[str, Any], stream: torch.Generator
) -> tuple[dict[str, list[Tensor]], dict[str, list[float]]]:
    """Gradients of mini-batches of each kind, and how far coresets, as chosen and spoiled, are from their subsets."""
    m, r, mode = settings["batch_size"], settings["subset"], settings.get("statistics", "running")
    everything = SubsetCandidates(torch.arange(len(train)), train.labels, by_class=False)
    chosen, weights = _craig_subset(model, train)
    kinds: dict[str, list[Tensor]] = {kind: [] for kind in ("random m", "random r", "crest", "craig", "union")}
    spoiled: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for _ in range(settings["draws"]):
        subset = everything.draw(r, stream)
        seen = gradient_proxies(model, train, subset, proxy=settings.get("proxy", "logit"), statistics=mode)
        points = _written_out(seen.proxies)
        (best,) = mini_batch_coresets(points, train.labels[subset], 1, m, **_by_class(False))
        own = gradient(model, train, subset, statistics=mode)
        crest = gradient(model, train, subset[best.chosen], best.weights, statistics=mode)
        kinds["random r"].append(own)
        kinds["crest"].append(crest)
        kinds["random m"].append(gradient(model, train, everything.draw(m, stream), statistics=mode))
        part = torch.randperm(len(chosen), generator=stream)[:m]
        craig = gradient(model, train, chosen[part], weights[part] / weights[part].mean(), statistics=mode)
        kinds["craig"].append(craig)
        random = torch.randperm(r, generator=stream)[:m]
        central = torch.cdist(points, points).sum(1).argsort(stable=True)[:m]
        for kind, (places, by) in {
            "greedy": (best.chosen, best.weights),
            "unit weights": (best.chosen, torch.ones(m)),
            "shuffled": (best.chosen, best.weights[torch.randperm(m, generator=stream)]),
            "random picks": (random, _shares(points, random)),
            "central": (central, _shares(points, central)),
        }.items():
            off = crest if kind == "greedy" else gradient(model, train, subset[places], by, statistics=mode)
            spoiled[kind].append(float((off - own).norm()))
    fives = torch.split(torch.stack(kinds["crest"]), 5)
    kinds["union"] = [five.mean(0) for five in fives if len(five) == 5]
    return kinds, spoiled


def _written_out(proxies: Tensor | LastLayerGradients | None) -> Tensor:
    """Gradients of the last layer as vectors, where they are known by their factors."""
    if isinstance(proxies, LastLayerGradients):
        inputs = torch.cat([proxies.features, torch.ones(len(proxies.features), 1)], 1)
        return (proxies.residuals[:, :, None] * inputs[:, None, :]).flatten(1)
    assert proxies is not None
    return proxies


def _shares(proxies: Tensor, picked: Tensor) -> Tensor:
    """How many are nearest to each pick, with mean 1."""
    counted = torch.bincount(torch.cdist(proxies, proxies[picked]).argmin(1), minlength=len(picked)).float()
    return counted / counted.mean()


def _craig_subset(model: nn.Module, train: Examples) -> tuple[Tensor, Tensor]:
    curator = pinned(Curator, examples=train, policy=pinned_method("craig"), batch_size=1)
    curator.start(model)
    assert curator.plan.active is not None and curator.plan.loss_weight is not None
    chosen = curator.plan.active.nonzero().flatten()
    return chosen, curator.plan.loss_weight[chosen]


def _coresets(
    here: TrustRegionSettings, settings: Mapping[str, Any], stream: torch.Generator
) -> tuple[Tensor, Tensor, list[GradientProxies]]:
    """Mini-batches, their weights, and looks at the random subsets that they stand for."""
    labels = here.examples.labels
    everything = SubsetCandidates(torch.arange(len(labels)), labels, by_class=True)
    subsets = [everything.draw(settings["subset"], stream) for _ in range(settings["coresets"])]
    looks = [gradient_proxies(here.model, here.examples, one, proxy="logit", statistics="batch") for one in subsets]
    proxies = torch.cat([seen.proxies for seen in looks if isinstance(seen.proxies, Tensor)])
    coresets = mini_batch_coresets(
        proxies, labels[torch.cat(subsets)], len(subsets), settings["batch_size"], **_by_class(True)
    )
    batches = torch.stack([subset[one.chosen] for subset, one in zip(subsets, coresets, strict=True)])
    return batches, torch.stack([one.weights for one in coresets]), looks


def _by_class(stratified: bool) -> dict[str, Any]:
    return options(mini_batch_coresets, {"by_class": stratified})
