"""Training on a fraction of the data."""

from holdfast.coresets.batch_norm import frozen_batch_norm, weighted_batch_norm
from holdfast.coresets.craig import Craig
from holdfast.coresets.crest import Crest
from holdfast.coresets.glister import Glister
from holdfast.coresets.gradmatch import GradMatch
from holdfast.coresets.pruning import El2n, Forgotten, Grand
from holdfast.coresets.scores import Forgetting, el2n, grand

__all__ = [
    "Craig",
    "Crest",
    "El2n",
    "Forgetting",
    "Forgotten",
    "Glister",
    "GradMatch",
    "Grand",
    "el2n",
    "frozen_batch_norm",
    "grand",
    "weighted_batch_norm",
]
