"""Networks that have a name but no class of their own: each is a class, or a function, with some options set.

A factory makes a model from the shape of one input and the number of classes; `holdfast.models.table` has their names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from holdfast.errors import ConfigError
from holdfast.models.networks import resnet
from holdfast.models.networks.cubic import CubicCNN
from holdfast.models.networks.environment_cnns import StridedCNN
from holdfast.models.networks.federated_cnns import FederatedCNN
from holdfast.models.networks.mlp import MLP
from holdfast.models.networks.pocket_cnn import PocketCNN
from holdfast.models.shapes import expect_shape

#: Makes a model from the shape of one input and the number of classes.
Factory = Callable[[tuple[int, ...], int], nn.Module]


def _on_images(name: str, network: Callable[..., nn.Module], **options: Any) -> Factory:
    """A network that must be told how many channels its images have."""

    def make(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
        channels = expect_shape(name, input_shape, "channels", "height", "width")[0]
        return network(n_classes, channels=channels, **options)

    return make


def _on_patches(form: Callable[[int], CubicCNN]) -> Factory:
    """A cubic CNN, which tells two classes apart."""

    def make(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
        if n_classes != 2:
            raise ConfigError(f"the cubic CNN tells two classes apart and was asked for {n_classes}; use another model")
        return form(expect_shape("the cubic CNN", input_shape, "patches", "dimension")[1])

    return make


resnet18 = _on_images("resnet18", resnet.resnet18)
resnet18_pixels = _on_images("resnet18-pixels", resnet.pixel_resnet18)
resnet18_cifar = _on_images("resnet18-cifar", resnet.resnet18, stem="cifar")
resnet20 = _on_images("resnet20", resnet.resnet20)
resnet50 = _on_images("resnet50", resnet.resnet50)
wide_resnet50 = _on_images("wide-resnet50", resnet.wide_resnet50)
cubic = _on_patches(CubicCNN.released)
cubic_pure = _on_patches(CubicCNN.pure)
cnn_femnist = partial(FederatedCNN, filters=(16, 32), hidden=128, dropout=(0.25, 0.5))
cnn_fashion = partial(FederatedCNN, filters=(32, 64), hidden=1024)
cnn_small = partial(FederatedCNN, filters=(8, 16), hidden=64, padded=False)
cnn_half = partial(FederatedCNN, filters=(8, 16), hidden=32, kernel=3, halved=True)
cnn_half_batchnorm = partial(FederatedCNN, filters=(8, 16), hidden=32, kernel=3, halved=True, normalised=True)
cnn_pfl = partial(FederatedCNN, filters=(32, 64), hidden=128, kernel=3, padded=False, pool_first=False)
cnn_28 = partial(StridedCNN, filters=(64, 128), hidden=4096)
cnn_64 = partial(StridedCNN, filters=(64, 64), hidden=4096)
cnn_28_small = partial(StridedCNN, filters=(8, 16), hidden=64)
mlp_batchnorm = partial(MLP, hidden=(64, 32), normalised=True)
pocket_cnn = partial(PocketCNN, normalisation="group")
pocket_cnn_batchnorm = partial(PocketCNN, normalisation="batch")
