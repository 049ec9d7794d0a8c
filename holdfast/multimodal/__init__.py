"""Vision-language models: find the words they lean on, fine-tune them off it, check what they look at."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.multimodal.audit.attributes import Attributes, label_attribute, vocabulary
    from holdfast.multimodal.audit.detection import Finding, rank_attributes
    from holdfast.multimodal.audit.detectors import Detections, Detector, OwlVit, credited_words, load_owl_vit
    from holdfast.multimodal.audit.explanations import class_maps
    from holdfast.multimodal.audit.metrics import ExplanationScore, adjusted_average, adjusted_iou, soft_iou
    from holdfast.multimodal.backends import (
        SmallTwoTowerModel,
        Trained,
        TwoTowerModel,
        WordTokenizer,
        load_clip,
        load_open_clip,
    )
    from holdfast.multimodal.backends.pretraining import pretrain
    from holdfast.multimodal.method.baselines import FineTunedClip, linear_probe, probe_splits, zero_shot
    from holdfast.multimodal.method.classifier import PromptClassifier
    from holdfast.multimodal.method.spurious_aware import SpuriousAware, Terms
    from holdfast.multimodal.method.training import PUBLISHED, fine_tune
    from holdfast.multimodal.tasks.prompts import Wording
    from holdfast.multimodal.tasks.templates import TEMPLATES
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "PUBLISHED",
    "TEMPLATES",
    "Attributes",
    "Detections",
    "Detector",
    "ExplanationScore",
    "Finding",
    "FineTunedClip",
    "OwlVit",
    "PromptClassifier",
    "SmallTwoTowerModel",
    "SpuriousAware",
    "Terms",
    "Trained",
    "TwoTowerModel",
    "WordTokenizer",
    "Wording",
    "adjusted_average",
    "adjusted_iou",
    "class_maps",
    "credited_words",
    "fine_tune",
    "label_attribute",
    "linear_probe",
    "load_clip",
    "load_open_clip",
    "load_owl_vit",
    "pretrain",
    "probe_splits",
    "rank_attributes",
    "soft_iou",
    "vocabulary",
    "zero_shot",
]
