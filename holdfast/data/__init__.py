"""Examples with stable ids, the readers of data sets, and the builders of spurious ones."""

from holdfast.data import (
    arrays,
    celeba,
    cifar,
    civilcomments,
    coloured,
    digits,
    folder,
    idx,
    patches,
    restricted_imagenet,
    spuco_mnist,
    urbancars,
)
from holdfast.data.catalog import DATASETS, DataSet, data_root, describe, find, get, load, register, status
from holdfast.data.download import RemoteFile, fetch
from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import Inputs, LazyInputs, TensorInputs

__all__ = [
    "DATASETS",
    "DataSet",
    "Examples",
    "Inputs",
    "LazyInputs",
    "RemoteFile",
    "Splits",
    "TensorInputs",
    "arrays",
    "celeba",
    "cifar",
    "civilcomments",
    "coloured",
    "data_root",
    "describe",
    "digits",
    "fetch",
    "find",
    "folder",
    "get",
    "idx",
    "load",
    "patches",
    "register",
    "restricted_imagenet",
    "spuco_mnist",
    "status",
    "urbancars",
]
