"""The papers' networks by name, and the head of any model."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.models.heads import features_and_logits, find_head, logits_of
    from holdfast.models.networks.cubic import CubicCNN
    from holdfast.models.networks.densenet import DenseNet121
    from holdfast.models.networks.federated_cnns import CelebACNN, FederatedCNN
    from holdfast.models.networks.federated_linear import BagOfWords, LinearSVM, SoftmaxRegression
    from holdfast.models.networks.lenet import LeNet5
    from holdfast.models.networks.linear import LinearClassifier
    from holdfast.models.networks.mlp import MLP
    from holdfast.models.networks.pocket_cnn import PocketCNN
    from holdfast.models.networks.resnet import ResNet, resnet18, resnet20, resnet50, wide_resnet50
    from holdfast.models.networks.text import distilbert, roberta
    from holdfast.models.networks.text_bag import TextBag
    from holdfast.models.registry import build
    from holdfast.models.spec import ModelSpec
    from holdfast.models.starting_weights import IMAGENET_WEIGHTS, load_weights
    from holdfast.models.table import HUB_MODELS, MODELS
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "HUB_MODELS",
    "IMAGENET_WEIGHTS",
    "MLP",
    "MODELS",
    "BagOfWords",
    "CelebACNN",
    "CubicCNN",
    "DenseNet121",
    "FederatedCNN",
    "LeNet5",
    "LinearClassifier",
    "LinearSVM",
    "ModelSpec",
    "PocketCNN",
    "ResNet",
    "SoftmaxRegression",
    "TextBag",
    "build",
    "distilbert",
    "features_and_logits",
    "find_head",
    "load_weights",
    "logits_of",
    "resnet18",
    "resnet20",
    "resnet50",
    "roberta",
    "wide_resnet50",
]
