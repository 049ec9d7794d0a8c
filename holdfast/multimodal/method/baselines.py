"""What the method is compared with, on the same towers and the same data.

======================  ==============================================================================================
zero-shot               `zero_shot`: the model as it is
fine-tuned CLIP         `fine_tune` with `FineTunedClip()`: CLIP's loss alone, balanced draws
ERM                     `fine_tune` without a method: cross-entropy on zero-shot logits, natural draws
group DRO               `fine_tune` with ``holdfast.spurious.GroupDRO()``: the same logits, balanced draws
linear probe            `fit` of a linear layer on `probe_splits`
DFR                     `fit` of that layer with ``holdfast.spurious.DfrTrain()`` or ``DfrVal()``
======================  ==============================================================================================

Methods of other rooms are handed in, since rooms don't import each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from holdfast.data.examples import Examples, Splits
from holdfast.multimodal.backends.base import TwoTowerModel
from holdfast.multimodal.method.cache import encoded_splits
from holdfast.multimodal.method.classifier import PromptClassifier
from holdfast.multimodal.method.spurious_aware import Sampling, SpuriousAware
from holdfast.multimodal.tasks.prompts import Wording
from holdfast.streams import derive_seed
from holdfast.training.evaluation.evaluation import evaluate
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.objective import Objective
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy


def zero_shot(model: TwoTowerModel, wording: Wording, examples: Examples, train: Examples | None = None) -> GroupReport:
    """How the model fares without any training.

    Args:
        model: put into evaluation mode, otherwise left as it was.
        wording: names of the classes.
        examples: preprocessed images with labels.
        train: the training set, for the adjusted average.

    Returns:
        The report.
    """
    return evaluate(PromptClassifier.of(model, wording), examples, train=train)


@dataclass(frozen=True)
class FineTunedClip(Policy):
    """CLIP's loss without further terms.

    Attributes:
        sampling: how batches are drawn: ``balanced`` over groups, or ``natural``.
    """

    name: ClassVar[str] = "fine-tuned-clip"

    sampling: Sampling = "balanced"

    def update(self, context: Context) -> Plan:
        """As spurious-aware fine-tuning draws."""
        return self._bare.update(context)

    def objective(self) -> Objective:
        """CLIP's loss."""
        return self._bare.objective()

    @property
    def _bare(self) -> SpuriousAware:
        return SpuriousAware(lambda_vc=0, lambda_lc=0, lambda_vs=0, lambda_ls=0, sampling=self.sampling)


def probe_splits(model: TwoTowerModel, splits: Splits) -> Splits:
    """The data as frozen image embeddings of unit length, for linear methods.

    Args:
        model: left as it was.
        splits: preprocessed images.

    Returns:
        Splits whose inputs are (n, width).
    """
    return encoded_splits(model, splits, model.encode_image)


def linear_probe(splits: Splits, seed: int = 0) -> nn.Linear:
    """A new linear layer for `probe_splits`.

    Args:
        splits: what it will be trained on.
        seed: of its first weights.

    Returns:
        The layer.
    """
    (width,) = splits.train.input_shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "linear-probe"))
        return nn.Linear(width, splits.train.n_classes)
