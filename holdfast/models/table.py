"""The networks by name; each is imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import LazyTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

    from holdfast.models.factories import Factory

MODELS: LazyTable[Factory] = LazyTable(
    "model",
    {
        "lenet5": "holdfast.models:LeNet5",
        "mlp": "holdfast.models:MLP",
        "mlp-batchnorm": "holdfast.models.factories:mlp_batchnorm",
        "linear": "holdfast.models:LinearClassifier",
        "resnet18": "holdfast.models.factories:resnet18",
        "resnet18-pixels": "holdfast.models.factories:resnet18_pixels",
        "resnet50": "holdfast.models.factories:resnet50",
        "wide-resnet50": "holdfast.models.factories:wide_resnet50",
        "resnet18-cifar": "holdfast.models.factories:resnet18_cifar",
        "resnet20": "holdfast.models.factories:resnet20",
        "densenet121": "holdfast.models:DenseNet121",
        "distilbert-base-uncased": "holdfast.models:distilbert",
        "roberta-base": "holdfast.models:roberta",
        "cubic": "holdfast.models.factories:cubic",
        "cubic-pure": "holdfast.models.factories:cubic_pure",
        "cnn-femnist": "holdfast.models.factories:cnn_femnist",
        "cnn-fashion": "holdfast.models.factories:cnn_fashion",
        "cnn-celeba": "holdfast.models:CelebACNN",
        "cnn-small": "holdfast.models.factories:cnn_small",
        "cnn-half": "holdfast.models.factories:cnn_half",
        "cnn-half-batchnorm": "holdfast.models.factories:cnn_half_batchnorm",
        "cnn-pfl": "holdfast.models.factories:cnn_pfl",
        "cnn-28": "holdfast.models.factories:cnn_28",
        "cnn-64": "holdfast.models.factories:cnn_64",
        "cnn-28-small": "holdfast.models.factories:cnn_28_small",
        "pocket-cnn": "holdfast.models.factories:pocket_cnn",
        "pocket-cnn-batchnorm": "holdfast.models.factories:pocket_cnn_batchnorm",
        "svm": "holdfast.models:LinearSVM",
        "softmax": "holdfast.models:SoftmaxRegression",
        "bag-of-words": "holdfast.models:BagOfWords",
        "text-bag": "holdfast.models:TextBag",
    },
)

#: The networks whose published weights have their name on the Hugging Face hub, made from a name there or a folder.
HUB_MODELS: LazyTable[Callable[[tuple[int, ...], int, Path | str], nn.Module]] = LazyTable(
    "model of the hub",
    {"distilbert-base-uncased": "holdfast.models:distilbert", "roberta-base": "holdfast.models:roberta"},
)

#: Libraries whose models are named by a prefix, as in ``hf:distilbert-base-uncased``.
ADAPTERS: LazyTable[Callable[..., nn.Module]] = LazyTable(
    "library of models",
    {"hf": "holdfast.models.hub_models:transformers_model", "timm": "holdfast.models.hub_models:timm_model"},
)
