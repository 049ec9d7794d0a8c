"""CRAIG: once an epoch, the medoids of all gradients, weighed by the sizes of their clusters.

Mirzasoleiman, Bilmes and Leskovec, "Coresets for Data-efficient Training of Machine Learning Models" (ICML 2020,
https://arxiv.org/abs/1906.01827). In each class, greedy facility location on the distances of gradients, of which the
residuals softmax - one-hot are the cheap part; one weighted subset serves for a whole epoch. For deep networks that is
too long: the gradients that it was chosen by change within a few steps (`holdfast.coresets.Crest` is the answer to
that).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast.coresets.baselines.subset import SubsetPolicy, class_parts
from holdfast.coresets.crest.gradient_proxies import check_metric
from holdfast.coresets.crest.mini_batches import cluster_weights
from holdfast.primitives.facility_location import facility_location
from holdfast.primitives.similarity import LastLayerGradients, Metric
from holdfast.training.policy import Context


@dataclass(kw_only=True)
class Craig(SubsetPolicy):
    """Medoids of the gradients of each class, weighed by what they stand for.

    Attributes:
        proxy: what stands for an example's gradient: the residual of the `logit`, or the gradient of the `last_layer`.
        metric: how distances of gradients become similarities.
    """

    name: ClassVar[str] = "craig"

    proxy: Literal["logit", "last_layer"] = "logit"
    metric: Metric = "euclidean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_metric(self.name, self.proxy, self.metric)

    def choose(self, context: Context, pool: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Facility location in each class."""
        outputs, labels = context.outputs, context.examples.labels
        classes = class_parts(labels, pool, size)
        place = torch.empty(len(labels), dtype=torch.int64)
        place[pool] = torch.arange(len(pool))
        if self.proxy == "last_layer":
            features = outputs.features(pool)
            proxies: Tensor | LastLayerGradients = LastLayerGradients(outputs.residuals(pool), features)
        else:
            proxies = outputs.residuals(pool)
        parts, budgets = [place[members] for _, members, _ in classes], [share for _, _, share in classes]
        exemplars = facility_location(proxies, budgets, parts=parts, metric=self.metric)
        chosen = pool[torch.cat([part.chosen for part in exemplars])]
        return chosen, cluster_weights(torch.cat([part.weights for part in exemplars]))
