"""What the cells of the chapter on vision-language models compute: a tower fine-tuned in one way, and how it fares.

Every row starts from the same tower and trains the same parameters on the same data; rows differ in their method. Right
is measured by groups, and right for the right reason by AIoU. At the ``cpu`` scale the tower is the small one that has
learned the shortcut of the rendered shapes, kept by seed below the data root.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from holdfast.data import data_root
from holdfast.errors import MissingDependencyError
from holdfast.multimodal import (
    FineTunedClip,
    PromptClassifier,
    SpuriousAware,
    TwoTowerModel,
    fine_tune,
    linear_probe,
    probe_splits,
    rank_attributes,
    zero_shot,
)
from holdfast.multimodal.audit.detection import discrepancies
from holdfast.multimodal.backends.towers import load_tower
from holdfast.multimodal.tasks.emoji.images import emoji_task
from holdfast.multimodal.tasks.emoji.tower import emoji_tower
from holdfast.multimodal.tasks.imagenet_pair import ImageNetPair
from holdfast.multimodal.tasks.shapes.data import on_every_ground, shapes_clip_task
from holdfast.multimodal.tasks.shapes.tower import shapes_tower
from holdfast.multimodal.tasks.task import ClipTask, explanation_score
from holdfast.multimodal.tasks.waterbirds import WaterbirdsClip
from holdfast.papers.engine.pins import pinned
from holdfast.papers.engine.witness import tell
from holdfast.spurious import DfrTrain, DfrVal, GroupDRO
from holdfast.training import GroupReport, Training, fit
from holdfast.training.evaluation.evaluation import predict
from holdfast.training.policy import Policy

#: Policies of rows with a name and their options; rows that train nothing have their own branch.
_NAMED: Mapping[str, tuple[type[Policy], Mapping[str, Any]]] = {
    "fine-tuned clip": (FineTunedClip, {}),
    "fine-tuned clip, natural": (FineTunedClip, {"sampling": "natural"}),
    "group-dro": (GroupDRO, {}),
}
_PROBES: Mapping[str, type[Policy] | None] = {"linear probe": None, "dfr-train": DfrTrain, "dfr-val": DfrVal}


def method_of(name: str, form: str = "cs", sampling: str = "balanced") -> Policy | None:
    """The method of a row: by name, or by its terms, such as ``lc+vc+ls``; None is plain training."""
    if name == "erm":
        return None
    if name in _NAMED:
        build, own = _NAMED[name]
        return pinned(build, **own)
    terms = name.split("+")
    weights = {f"lambda_{term}": float(term in terms) for term in ("vc", "lc", "vs", "ls")}
    return pinned(SpuriousAware, form=form, sampling=sampling, **weights)


def tune(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Fine-tune a tower and report accuracies and explanations.

    Args:
        settings: ``world`` (see `world`), ``method`` (``erm``, ``zero-shot``, another name of `method_of`, a linear
            method on embeddings, or terms joined by ``+``), ``form`` and ``sampling`` of the terms, ``tuning`` (fields
            of `Training`), ``trained`` (which parameters), ``scale`` (of cosines at the start), ``explained`` (images
            per group; none are where it is 0, all where it is None).
        seed: of the tower, the data and the draws.

    Returns:
        In percent ``average`` (groups weighed by their training counts), ``worst_group``, ``group_mean`` and the
        accuracy of each group; ``aiou`` and ``aiou_worst`` where explanations were asked for, and by group; and
        ``epoch``, the chosen one from 1.
    """
    tower, task = world(settings["world"], seed)
    how = dict(settings.get("tuning", {}))
    if how.get("device") == "auto":
        how["device"] = _device()
    name, training = settings["method"], pinned(Training, **how, seed=seed)
    if name == "zero-shot":
        report, epoch = zero_shot(tower, task.wording, task.splits.test, task.splits.train), 0
    elif name in _PROBES:
        features = probe_splits(tower, task.splits)
        retrain = _PROBES[name]
        policy = None if retrain is None else pinned(retrain)
        result = fit(linear_probe(features, seed), features, policy, training)
        tell("norm", torch.cat([weight.detach().flatten() for weight in result.model.parameters()]).norm().item())
        return _accuracies(result.test) | {"epoch": result.best_epoch + 1.0}
    else:
        method = method_of(name, settings.get("form", "cs"), settings.get("sampling", "balanced"))
        trained = settings.get("trained", "projection")
        result = fine_tune(
            tower,
            task.splits,
            task.wording,
            method,
            training,
            trained=trained,
            scale=settings.get("scale"),
            cache=True,
        )
        tell("loss", [epoch["loss"] for epoch in result.history])
        tell("weights", dict(enumerate(tower.trained_parameters(trained))))
        report, epoch = result.test, result.best_epoch + 1
    metrics = _accuracies(report) | {"epoch": float(epoch)}
    if settings.get("explained", 0) == 0:
        return metrics
    score = explanation_score(tower, task, report, per_group=settings["explained"], seed=seed)
    tell("aiou", score.by_group)
    by_group = {f"aiou {group}": value for group, value in score.by_group.items()}
    return metrics | {"aiou": score.average, "aiou_worst": score.worst} | by_group


def several(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Several rows of one world whose tower is made on the spot and kept by nobody, for golden cells.

    Args:
        settings: ``world``, and ``rows``: what else `tune`, or `detect` where words are planted, is given.
        seed: of all of them.

    Returns:
        What they return, behind the number of the row.
    """
    metrics: dict[str, float] = {}
    with TemporaryDirectory() as towers:
        own = {**settings["world"], "towers": towers}
        for number, row in enumerate(settings["rows"]):
            numbers = (detect if "planted" in row else tune)({"world": own, **row}, seed)
            metrics |= {f"{number} {name}": value for name, value in numbers.items()}
    return metrics


def world(settings: Mapping[str, Any], seed: int) -> tuple[TwoTowerModel, ClipTask]:
    """The tower and the task of a cell.

    Args:
        settings: ``name`` (``shapes``, ``emoji``, ``waterbirds`` or ``imagenet-pair``) and its options; ``towers``,
            where small towers are kept, below the data root by default.
        seed: of everything that is made here.

    Returns:
        Both; the tower is the cell's own to train.
    """
    own, root = dict(settings), data_root(None)
    name, towers = own.pop("name"), Path(own.pop("towers", root / "towers"))
    counts = own.pop("counts", None)
    if name == "shapes":
        tower: TwoTowerModel = pinned(shapes_tower, folder=towers, seed=seed, **own)
        tell("tower", tower)
        return tower, shapes_clip_task(tower.preprocessing, seed, counts)
    if name == "emoji":
        tower = pinned(emoji_tower, folder=towers, seed=seed, **own)
        return tower, emoji_task(tower.preprocessing, seed, counts)
    tower = load_tower(own.pop("tower"), root, seed=0).to(_device())
    data = {"waterbirds": WaterbirdsClip, "imagenet-pair": ImageNetPair}[name]
    wanted = own.pop("templates", None)
    task = pinned(data, **own).load(root, tower.preprocessing)
    if wanted == "openai":
        task = replace(task, wording=replace(task.wording, templates=openai_templates()))
    return tower, task


def detect(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """What the ranking makes of a tower: the place and the discrepancy of the planted words and of the others.

    Args:
        settings: ``world``; ``planted`` (pairs of class and word); ``others`` (more pairs to report); and
            ``every_ground``, whether shapes on all grounds are looked at instead of the training set.
        seed: of the tower and the images.

    Returns:
        ``CLASS/WORD place`` (from 1; 0 where it isn't ranked) and ``information`` of every planted pair, ``delta`` of
        these and of the other pairs; ``other delta``, the largest of any pair that isn't planted; ``findings``, how
        many pairs are ranked.
    """
    tower, task = world(settings["world"], seed)
    examples, table = task.splits.train, task.known("train")
    if settings.get("every_ground"):
        examples, table = pinned(on_every_ground, preprocessing=tower.preprocessing, seed=seed)
    answers = predict(PromptClassifier.of(tower, task.wording), examples)
    tell("confidence", answers.confidence)
    predicted = answers.predicted.numpy()
    labels, names = examples.labels.numpy(), examples.class_names
    findings = pinned(rank_attributes, attributes=table, labels=labels, predicted=predicted)
    ranked = [(names[one.label], one.word) for one in findings]
    known = {
        (names[label], one.word): one
        for label in range(len(names))
        for one in pinned(
            discrepancies,
            words=table.words,
            present=table.present[labels == label],
            predicted=predicted[labels == label],
            label=label,
        )
    }
    planted = [tuple(pair) for pair in settings["planted"]]
    metrics = {"findings": float(len(ranked))}
    for pair in [*planted, *(tuple(pair) for pair in settings.get("others", ()))]:
        metrics[f"{'/'.join(pair)} delta"] = known[pair].delta if pair in known else 0.0
    for pair in planted:
        metrics[f"{'/'.join(pair)} place"] = float(ranked.index(pair) + 1) if pair in ranked else 0.0
        metrics[f"{'/'.join(pair)} information"] = known[pair].mutual_information if pair in known else 0.0
    metrics["other delta"] = max((known[pair].delta for pair in ranked if pair not in planted), default=0.0)
    return metrics


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _accuracies(report: GroupReport) -> dict[str, float]:
    average = report.train_mix if report.train_mix is not None else report.accuracy
    shares = {"average": average, "worst_group": report.worst_accuracy, "group_mean": report.group_mean}
    shares |= {score.name: score.accuracy for score in report.by_group if score.accuracy is not None}
    return {name: 100 * value for name, value in shares.items()}


def openai_templates() -> tuple[str, ...]:
    """CLIP's own 80 sentences, which printed zero-shot figures depend on; open_clip has them."""
    try:
        from open_clip import OPENAI_IMAGENET_TEMPLATES  # noqa: PLC0415 - optional
    except (ImportError, RuntimeError) as error:
        raise MissingDependencyError(
            f"CLIP's templates come with open_clip, which can't be imported ({error}); "
            "pip install 'holdfast[open-clip]'"
        ) from error
    return tuple(template("{}") for template in OPENAI_IMAGENET_TEMPLATES)
