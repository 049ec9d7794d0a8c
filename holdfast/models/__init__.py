"""The papers' networks by name, and the head of any model."""

from holdfast.models.cubic import CubicCNN
from holdfast.models.densenet import DenseNet121
from holdfast.models.device_cnns import CelebACNN, DeviceCNN
from holdfast.models.device_linear import BagOfWords, LinearSVM, SoftmaxRegression
from holdfast.models.heads import features_and_logits, find_head, logits_of
from holdfast.models.lenet import LeNet5
from holdfast.models.linear import LinearClassifier
from holdfast.models.mlp import MLP
from holdfast.models.pocket_cnn import PocketCNN
from holdfast.models.registry import HUB_MODELS, IMAGENET_WEIGHTS, MODELS, build, load_weights
from holdfast.models.resnet import ResNet, resnet18, resnet20, resnet50, wide_resnet50
from holdfast.models.text import distilbert, roberta

__all__ = [
    "HUB_MODELS",
    "IMAGENET_WEIGHTS",
    "MLP",
    "MODELS",
    "BagOfWords",
    "CelebACNN",
    "CubicCNN",
    "DenseNet121",
    "DeviceCNN",
    "LeNet5",
    "LinearClassifier",
    "LinearSVM",
    "PocketCNN",
    "ResNet",
    "SoftmaxRegression",
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
