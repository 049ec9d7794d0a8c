"""The part of a row that stays with its client: named layers, the head, or batch normalisation.

A row is a model's numbers one after another, and every parameter and running statistic has a name and a place in it. So
a personal part is a set of columns, whatever the layers are: methods say which, and are otherwise the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.errors import ConfigError, nearest
from holdfast.models.heads import find_head

if TYPE_CHECKING:
    from holdfast.federated.engine.network import Network

#: What stands for the last linear layer, whatever the model calls it.
HEAD = "head"


def columns_of_layers(network: Network, layers: Sequence[str], method: str) -> Tensor:
    """The places in a row of everything that belongs to some layers, ascending.

    Args:
        network: the model.
        layers: modules or parameters by name, such as ``features.0``; ``head`` is the last linear layer, unless the
            model has a part of that name.
        method: whose layers they are, for messages.

    Returns:
        int64 of shape (columns,).

    Raises:
        ConfigError: if there is no such layer, nothing in it trains, or nothing would be left to share.
    """
    if not layers:
        raise ConfigError(f"{method} has no layers that stay with clients; name some, such as head")
    columns = _columns(network, [key for layer in layers for key in _names_in(network, layer, method)])
    if len(columns) == network.size:
        raise ConfigError(
            f"the layers {', '.join(layers)} are all that {network.called} trains, so {method} would share nothing; "
            "name fewer, or use local"
        )
    return columns


def columns_of_batch_norm(network: Network, method: str) -> Tensor:
    """The places in a row of the parameters and the running statistics of batch normalisation, as above.

    Raises:
        ConfigError: if the model has none that trains or moves, or nothing else.
    """
    norms = [name for name, module in network.module.named_modules() if isinstance(module, _BatchNorm)]
    columns = _columns(network, [key for name in norms for key in _below(network, name)])
    if not len(columns):
        kind = "none that trains or moves" if norms else "none"
        raise ConfigError(
            f"{method} keeps batch normalisation with clients, and {network.called} has {kind}; use a model with "
            "nn.BatchNorm, or fedper with named layers"
        )
    if len(columns) == network.size:
        raise ConfigError(f"{network.called} trains nothing but batch normalisation, so {method} would share nothing")
    return columns


def columns_besides(network: Network, columns: Tensor) -> Tensor:
    """All other places in a row, ascending."""
    others = torch.ones(network.size, dtype=torch.bool, device=network.device)
    others[columns] = False
    return others.nonzero().flatten()


def _names_in(network: Network, layer: str, method: str) -> list[str]:
    """Names of a row's parts that belong to a layer."""
    found = _below(network, layer)
    if not found and layer == HEAD:
        found = _below(network, _head(network, method))
    if found:
        return found
    modules = dict(network.module.named_modules())
    if layer in modules or layer in dict(network.module.named_parameters()):
        raise ConfigError(
            f"nothing in the layer {layer!r} of {network.called} trains, so it is the same for all clients; name "
            f"another for {method}, or unfreeze it"
        )
    known = {HEAD, *(name for name in modules if name and _below(network, name)), *network.slices}
    raise ConfigError(f"{network.called} has no layer {layer!r} for {method}{nearest(layer, known)}")


def _head(network: Network, method: str) -> str:
    try:
        return find_head(network.module)[0]
    except ConfigError as error:
        raise ConfigError(
            f"the head of {network.called} can't be determined; name the layers that stay with clients under {method}, "
            f"such as {list(network.slices)[network.layout.parameters - 1]}"
        ) from error


def _below(network: Network, layer: str) -> list[str]:
    """The names of a layer's parts in a row; a parameter that two layers tie has the name of the first of them."""
    first = {id(parameter): name for name, parameter in network.module.named_parameters()}
    inside = [
        first[id(parameter)]
        for name, parameter in network.module.named_parameters(remove_duplicate=False)
        if _is_in(name, layer)
    ]
    statistics = [name for name, _ in network.module.named_buffers() if _is_in(name, layer)]
    return [name for name in (*inside, *statistics) if name in network.slices]


def _is_in(name: str, layer: str) -> bool:
    return not layer or name == layer or name.startswith(f"{layer}.")  # "" is the model itself


def _columns(network: Network, names: Iterable[str]) -> Tensor:
    mine = torch.zeros(network.size, dtype=torch.bool, device=network.device)
    for name in names:
        mine[network.slices[name]] = True
    return mine.nonzero().flatten()
