"""What EPIC is compared with: filters after a first training, thresholds, controls, DP-SGD, adversarial poisoning."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.poisoning.defenses.adversarial import AdversarialPoisoning, PoisonedCrossEntropy
    from holdfast.poisoning.defenses.dropping import AsManyAsEpic, HighestLoss, LowestConfidence
    from holdfast.poisoning.defenses.filtering import ActivationClustering, DeepKnn, SpectralSignatures
    from holdfast.poisoning.defenses.filters import activation_keeps, deep_knn_keeps, spectral_keeps
    from holdfast.poisoning.defenses.private import DpSgd, PrivateCrossEntropy, privacy_spent
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ActivationClustering",
    "AdversarialPoisoning",
    "AsManyAsEpic",
    "DeepKnn",
    "DpSgd",
    "HighestLoss",
    "LowestConfidence",
    "PoisonedCrossEntropy",
    "PrivateCrossEntropy",
    "SpectralSignatures",
    "activation_keeps",
    "deep_knn_keeps",
    "privacy_spent",
    "spectral_keeps",
]
