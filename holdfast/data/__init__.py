"""Examples with stable ids, the readers of data sets, and the builders of spurious ones."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.data.catalog import DATASETS, DataSet, data_root, describe, find, get, load, register, status
    from holdfast.data.clients import partitioned
    from holdfast.data.clients.clients import ClientPart, Clients
    from holdfast.data.clients.federations import (
        FEDERATIONS,
        FederatedData,
        TrainingRecipe,
        federation,
        load_federation,
    )
    from holdfast.data.clients.partitioned import AtRandom, ByClasses, ByDirichlet, ByKey, partition
    from holdfast.data.download import fetch
    from holdfast.data.examples import Examples, Splits
    from holdfast.data.inputs import Inputs, LazyInputs, TensorInputs
    from holdfast.data.own.data_set import OwnData, read
    from holdfast.data.own.options import ReadingOptions
    from holdfast.data.readers import arrays, folder, idx
    from holdfast.data.remote_files import RemoteFile
    from holdfast.data.sets.federated import (
        bar_clients,
        celeba_leaf,
        celebrity_clients,
        femnist,
        painted_clients,
        stackoverflow,
        surrogate,
        vehicle,
    )
    from holdfast.data.sets.federated import fashion as federated_fashion
    from holdfast.data.sets.images import (
        celeba,
        cifar,
        coloured,
        digits,
        patches,
        restricted_imagenet,
        spuco_mnist,
        urbancars,
    )
    from holdfast.data.sets.text import civilcomments, multinli, snli
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "DATASETS",
    "FEDERATIONS",
    "AtRandom",
    "ByClasses",
    "ByDirichlet",
    "ByKey",
    "ClientPart",
    "Clients",
    "DataSet",
    "Examples",
    "FederatedData",
    "Inputs",
    "LazyInputs",
    "OwnData",
    "ReadingOptions",
    "RemoteFile",
    "Splits",
    "TensorInputs",
    "TrainingRecipe",
    "arrays",
    "bar_clients",
    "celeba",
    "celeba_leaf",
    "celebrity_clients",
    "cifar",
    "civilcomments",
    "coloured",
    "data_root",
    "describe",
    "digits",
    "federated_fashion",
    "federation",
    "femnist",
    "fetch",
    "find",
    "folder",
    "get",
    "idx",
    "load",
    "load_federation",
    "multinli",
    "painted_clients",
    "partition",
    "partitioned",
    "patches",
    "read",
    "register",
    "restricted_imagenet",
    "snli",
    "spuco_mnist",
    "stackoverflow",
    "status",
    "surrogate",
    "urbancars",
    "vehicle",
]
