"""What the cells of S2L's chapter compute in the small world of facts: proxies, subsets, and models trained on them.

What several cells of a seed need, the proxy's trajectories and the scores of a target that was trained on everything,
is computed once in each process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from holdfast.finetuning import ConfidenceCurriculum, FineTuningSettings, cluster_trajectories, fine_tune, quotas
from holdfast.finetuning.language_models.losses import example_losses
from holdfast.finetuning.language_models.models import gpt_neox
from holdfast.finetuning.selection.analysis import evenness, homogeneity, rank_correlation, within_share
from holdfast.finetuning.selection.baselines import proportional
from holdfast.papers.engine.pins import options
from holdfast.papers.engine.witness import tell
from holdfast.papers.s2l.rows import HOW, Course, choose, follow, tell_loss, tell_weights
from holdfast.papers.s2l.world import HEAD, LONGEST, TAIL, TOPICS, VOCABULARY, FactExamples, make_world
from holdfast.streams import numpy_stream
from holdfast.training.model_outputs import evaluating

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_BATCH = 64
_KEPT = 6  # seeds whose shared results stay in memory

world = lru_cache(maxsize=_KEPT)(make_world)


def untrained(kind: str, seed: int) -> nn.Module:
    """The proxy of 25,344 weights or the target of 179,008, embeddings included."""
    layers, width = {"proxy": (2, 24), "target": (3, 64)}[kind]
    return gpt_neox(VOCABULARY, layers=layers, width=width, heads=4, longest=LONGEST, seed=seed, end=0)


def training_settings(kind: str, steps: int | None, seed: int, *, epochs: int = 3) -> FineTuningSettings:
    """Of the proxy or the target, for so many steps; for so many epochs where these are None."""
    rate = {"proxy": 5e-3, "target": 2e-3}[kind]
    return FineTuningSettings(
        epochs=epochs, steps=steps, batch_size=_BATCH, learning_rate=rate, most_tokens=4096, seed=seed, **HOW
    )


@dataclass(frozen=True, eq=False)
class _Followed:
    """A training on everything, and gradients of some examples early in it and at its end."""

    course: Course
    positions: Ints
    early: Floats
    end: Floats


@lru_cache(maxsize=2 * _KEPT)
def course(kind: str, examples: int, steps: int, seed: int) -> _Followed:
    """Train the proxy or the target on everything."""
    train = world(seed, examples).train
    model = untrained(kind, seed)
    some = numpy_stream(seed, "gradients").choice(examples, min(examples, 1200), replace=False)
    gradients = list[Floats]()

    def look() -> None:
        gradients.append(_gradients(model, train, some))

    course = follow(model, train.tokens, training_settings(kind, steps, seed), early=look)
    look()
    return _Followed(course, some, *gradients)


def _gradients(model: nn.Module, train: FactExamples, positions: Ints) -> Floats:
    """Gradients of examples with respect to the output layer and the last block's MLP, shape (n, p)."""
    config: Any = model.config
    last = f"layers.{config.num_hidden_layers - 1}.mlp"
    parts = [part for name, part in model.named_parameters() if name.startswith("lm_head") or last in name]
    rows = []
    for position in positions.tolist():
        loss = example_losses(model, train.tokens.batch([position]), reduction="mean")[0]
        rows.append(torch.cat([part.flatten() for part in torch.autograd.grad(loss, parts)]))
    gradients: Floats = torch.stack(rows).numpy()
    return gradients


def answer_accuracy(model: nn.Module, facts: FactExamples) -> NDArray[np.bool_]:
    """Whether the likeliest word at the answer's place is the answer, given the words before it."""
    right = np.zeros(len(facts.tokens), np.bool_)
    with evaluating(model):
        for positions in facts.tokens.batches(np.arange(len(facts.tokens)), 4096):
            batch = facts.tokens.batch(positions)
            logits: Tensor = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
            tell("logits", float(logits.double().norm()))
            rows, places = torch.arange(len(positions)), torch.from_numpy(facts.answer_places[positions])
            guessed = logits[rows, places - 1].argmax(1)
            right[positions] = (guessed == batch.input_ids[rows, places]).numpy()
    return right


def train_on_subset(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Choose a subset, train the target on it for as many steps as on everything, and ask it about all facts.

    Args:
        settings: ``method``, ``budget``, ``examples``, ``steps``, and ``k`` of S2L.
        seed: of everything.

    Returns:
        ``macro`` (mean over topics), ``head`` and ``tail`` accuracy in percent; ``facts`` that the subset covers, and
        ``evenness`` of its topics.
    """
    data, steps = world(seed, settings["examples"]), settings["steps"]
    model = untrained("target", seed)
    if settings["method"] == "curriculum":
        feed = ConfidenceCurriculum(data.train.tokens, settings["budget"], steps, _BATCH, rounds=3)
        fine_tune(model, data.train.tokens, training_settings("target", steps, seed), feed=feed, progress=tell_loss)
        chosen = np.array(feed.chosen)
    else:
        n = settings["examples"]
        chosen = choose(
            settings["method"],
            settings["budget"],
            sources=data.train.sources,
            undefined=data.train.tokens.undefined,
            proxy=lambda: course("proxy", n, steps, seed).course.trajectories,
            target=lambda: course("target", n, steps, seed).course,
            k=settings.get("k", TOPICS),
            seed=seed,
        )
        fine_tune(model, data.train.tokens.part(chosen), training_settings("target", steps, seed), progress=tell_loss)
    tell_weights(model)
    right = answer_accuracy(model, data.test)
    topics = np.array([right[data.test.topics == topic].mean() for topic in range(TOPICS)])
    return {
        "macro": 100 * float(topics.mean()),
        "head": 100 * float(topics[:HEAD].mean()),
        "tail": 100 * float(topics[-TAIL:].mean()),
        "facts": float(len(np.unique(data.train.facts[chosen]))),
        "evenness": evenness(data.train.topics[chosen], TOPICS),
    }


def clusters_of_world(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """What clusters of trajectories know: topics, the target's trajectories, its gradients.

    Args:
        settings: ``examples``, ``steps``, ``k`` (several), ``draws`` for gradient errors, and where k-means starts
            (``start``), the published way without it.
        seed: of everything.

    Returns:
        ``KIND K/purity`` of clusters on trajectories, on the last loss, on four dense and four thin points, and on
        hidden states; ``shuffled``; ``within`` and ``proxy within``, the share of variance within clusters of the
        target's and the proxy's trajectories; ``spearman``, the least over points; cosines of gradients at two times;
        relative errors of subset gradients.
    """
    n, steps = settings["examples"], settings["steps"]
    train = world(seed, n).train
    proxy, target = course("proxy", n, steps, seed), course("target", n, steps, seed)
    curves = proxy.course.trajectories
    kinds: dict[str, Floats] = {
        "trajectories": curves.losses,
        "last loss": curves.losses[:, -1:],
        **{f"dense {phase}": curves.dense(4, phase).losses for phase in ("early", "middle", "late")},
        "thin": curves.thinned(4).losses,
        "hidden states": target.course.states["end", "last"],
    }
    metrics = dict[str, float]()
    how = {name: settings[name] for name in ("start",) if name in settings}

    def clustered(values: Floats, k: int) -> Ints:
        return cluster_trajectories(values, **options(cluster_trajectories, {"k": k, "seed": seed, **how})).labels

    for k in settings["k"]:
        for kind, values in kinds.items():
            metrics[f"{kind} {k}/purity"] = homogeneity(clustered(values, k), train.topics).mean
    labels = clustered(curves.losses, settings["k"][0])
    shuffled = numpy_stream(seed, "shuffled").permutation(train.topics)
    metrics["shuffled"] = homogeneity(labels, shuffled).mean
    metrics["within"] = within_share(target.course.trajectories.losses, labels)
    metrics["proxy within"] = within_share(curves.losses, labels)
    pairs = zip(curves.losses.T, target.course.trajectories.losses.T, strict=True)
    metrics["spearman"] = min(rank_correlation(*pair) for pair in pairs)
    own, topics = labels[target.positions], train.topics[target.positions]
    metrics |= _cosines(target.early, own, topics, "early") | _cosines(target.end, own, topics, "end")
    metrics |= _errors(target.end, own, settings["draws"], seed)
    for kind, values in kinds.items():
        tell(kind, float(np.linalg.norm(values)))
    tell("gradients", [torch.from_numpy(part) for part in (target.early, target.end)])
    tell("found", {name: value for name, value in metrics.items() if "purity" not in name and name != "shuffled"})
    return metrics


def _cosines(gradients: Floats, labels: Ints, topics: Ints, time: str) -> dict[str, float]:
    unit = gradients / np.linalg.norm(gradients, axis=1, keepdims=True)
    cosine = unit @ unit.T
    apart = ~np.eye(len(unit), dtype=bool)
    same, topic = labels[:, None] == labels, topics[:, None] == topics
    return {
        f"{time}/same cluster": float(cosine[same & apart].mean()),
        f"{time}/other cluster": float(cosine[~same].mean()),
        f"{time}/same topic": float(cosine[topic & apart].mean()),
        f"{time}/random pair": float(cosine[apart].mean()),
    }


def _errors(gradients: Floats, labels: Ints, draws: int, seed: int) -> dict[str, float]:
    """Error of a tenth's weighed gradient sum relative to that of all, for three ways to draw as many examples.

    A pick stands for its cluster's size over the cluster's picks. Clusters too small for a pick are left out, and the
    others' weights are raised alike, so that all picks together stand for all examples.
    """
    total, sizes = gradients.sum(0), np.bincount(labels)
    budget, draw = len(labels) // 10, numpy_stream(seed, "subset gradients")
    clusters = [np.flatnonzero(labels == cluster) for cluster in range(len(sizes))]
    shares = {"proportional": proportional(sizes, budget), "equal": quotas(sizes, budget)}
    errors: dict[str, list[float]] = {"random": [], "proportional": [], "equal": []}
    for _ in range(draws):
        picks = draw.choice(len(labels), budget, replace=False)
        errors["random"].append(_error(gradients[picks].sum(0) * (len(labels) / budget), total))
        for way, counts in shares.items():
            picks = np.concatenate(
                [draw.choice(members, count, replace=False) for members, count in zip(clusters, counts, strict=True)]
            )
            errors[way].append(_error(_estimate(gradients, labels, picks), total))
    return {f"error/{way}": float(np.mean(values)) for way, values in errors.items()}


def _estimate(gradients: Floats, labels: Ints, picks: Ints) -> Floats:
    """The gradient sum of all by that of picks, see `_errors`."""
    sizes, counts = np.bincount(labels), np.bincount(labels[picks], minlength=labels.max() + 1)
    covered = sizes[counts > 0].sum()
    weights = (sizes / np.maximum(1, counts))[labels[picks]] * (len(labels) / covered)
    estimate: Floats = weights.astype(np.float32) @ gradients[picks]
    return estimate


def _error(estimate: Floats, total: Floats) -> float:
    return float(np.linalg.norm(estimate - total) / np.linalg.norm(total))
