"""Training on a fraction of the data."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.coresets.baselines.craig import Craig
    from holdfast.coresets.baselines.glister import Glister
    from holdfast.coresets.baselines.gradmatch import GradMatch
    from holdfast.coresets.baselines.pruning import El2n, Forgotten, Grand
    from holdfast.coresets.baselines.scores import Forgetting, el2n, grand
    from holdfast.coresets.crest.batch_norm import frozen_batch_norm, weighted_batch_norm
    from holdfast.coresets.crest.crest import Crest
else:
    __getattr__, __dir__ = lazy_names(__name__)

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
