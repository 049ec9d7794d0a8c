"""Models of the user's own, named as ``package.module:Net``: imported by name, see `holdfast.own_code`.

What a module holds under the name is a class of `nn.Module`, a function that makes one, or a model, which is copied. A
run's configuration names its model, and may come from somebody else: so a function of an installed package is called
only where its annotation says that it returns a model. ``os:system`` is not a model.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from torch import nn

from holdfast.errors import ConfigError
from holdfast.own_code import Wanted, is_installed, named_object


def own_factory(name: str) -> nn.Module | Callable[..., Any]:
    """What ``package.module:Net`` stands for.

    Args:
        name: module and object, with a colon between them.

    Returns:
        A model, or what makes one.

    Raises:
        ConfigError: if it can't be imported, is not there, or is nothing that makes a model.
    """
    wanted = Wanted(name, "model", "--model", "Net", "my_package.module:Net, hf:NAME or timm:NAME")
    made = named_object(wanted, _may_be_model)
    _refuse_other_objects(made, name)
    return typing.cast(nn.Module | Callable[..., Any], made)


def _refuse_other_objects(made: Any, name: str) -> None:
    if isinstance(made, nn.Module):
        return
    if inspect.isclass(made):
        if not issubclass(made, nn.Module):
            raise ConfigError(f"{name} is a class but no nn.Module; name a network, or a function that makes one")
        return
    if not callable(made):
        raise ConfigError(f"{name} is of type {type(made).__name__}, not a network; name one, or what makes one")
    if is_installed(made) and not _promises_model(made):
        raise ConfigError(
            f"{name} is a function of an installed package that doesn't say that it returns a nn.Module; call it in a "
            "function of your own and name that"
        )


def _may_be_model(value: Any, module: str) -> bool:
    if isinstance(value, nn.Module):
        return True
    own = getattr(value, "__module__", None) == module
    return own and (inspect.isfunction(value) or (inspect.isclass(value) and issubclass(value, nn.Module)))


def _promises_model(function: Any) -> bool:
    try:
        promised = typing.get_type_hints(function).get("return")
    except Exception:  # annotations may name what isn't imported
        return False
    return inspect.isclass(promised) and issubclass(promised, nn.Module)
