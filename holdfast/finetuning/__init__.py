"""Fine-tuning language models on the part of the data that matters: S2L, and the ways it is compared with.

Everything that chooses is a function of arrays; `TrajectoryRecorder` gets them from a model.
"""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.finetuning.language_models.fine_tuning import FineTuningSettings, fine_tune
    from holdfast.finetuning.language_models.losses import example_losses
    from holdfast.finetuning.language_models.models import (
        LanguageModel,
        load_language_model,
        small_language_model,
        with_lora,
    )
    from holdfast.finetuning.language_models.templates import Template
    from holdfast.finetuning.language_models.tokens import TokenPairs, tokenize
    from holdfast.finetuning.selection.balanced import balanced, quotas, resolve_budget
    from holdfast.finetuning.selection.baselines import (
        facility_locations,
        high_learnability,
        least_confidence,
        middle_perplexity,
        random_subset,
        source_balanced_random,
    )
    from holdfast.finetuning.selection.curriculum import ConfidenceCurriculum
    from holdfast.finetuning.selection.s2l import S2lSelection, TrajectoryClusters, cluster_trajectories, s2l_select
    from holdfast.finetuning.selection.scores import hidden_states, response_scores
    from holdfast.finetuning.trajectories import Trajectories, TrajectoryRecorder
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ConfidenceCurriculum",
    "FineTuningSettings",
    "LanguageModel",
    "S2lSelection",
    "Template",
    "TokenPairs",
    "Trajectories",
    "TrajectoryClusters",
    "TrajectoryRecorder",
    "balanced",
    "cluster_trajectories",
    "example_losses",
    "facility_locations",
    "fine_tune",
    "hidden_states",
    "high_learnability",
    "least_confidence",
    "load_language_model",
    "middle_perplexity",
    "quotas",
    "random_subset",
    "resolve_budget",
    "response_scores",
    "s2l_select",
    "small_language_model",
    "source_balanced_random",
    "tokenize",
    "with_lora",
]
