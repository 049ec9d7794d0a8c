"""Training on a fraction of the data."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.coresets.baselines.coverage import coverage_sample, margins
    from holdfast.coresets.baselines.craig import Craig
    from holdfast.coresets.baselines.dynamic import DynamicPruning
    from holdfast.coresets.baselines.glister import Glister
    from holdfast.coresets.baselines.gradmatch import GradMatch
    from holdfast.coresets.baselines.pruning import Coverage, El2n, Forgotten, Grand
    from holdfast.coresets.baselines.scores import Forgetting, el2n, grand
    from holdfast.coresets.baselines.stratified import Stratified
    from holdfast.coresets.crest.batch_norm import frozen_batch_norm, weighted_batch_norm
    from holdfast.coresets.crest.crest import Crest
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "Coverage",
    "Craig",
    "Crest",
    "DynamicPruning",
    "El2n",
    "Forgetting",
    "Forgotten",
    "Glister",
    "GradMatch",
    "Grand",
    "Stratified",
    "coverage_sample",
    "el2n",
    "frozen_batch_norm",
    "grand",
    "margins",
    "weighted_batch_norm",
]
