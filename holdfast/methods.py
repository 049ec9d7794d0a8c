"""Every method by the name it has on the command line; the fields of each are its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import ConfigError, nearest
from holdfast.spurious import ClassBalanced, GroupBalanced, GroupSubsampled, Jtt, Pde, Spare
from holdfast.training.policy import Chain, Policy, Uniform

METHODS: dict[str, type[Policy]] = {
    "erm": Uniform,
    "class-balanced": ClassBalanced,
    "group-balanced": GroupBalanced,
    "group-subsampled": GroupSubsampled,
    "jtt": Jtt,
    "pde": Pde,
    "spare": Spare,
}


def method_names(joined: str) -> list[str]:
    """The methods named by ``"epic+crest"``, in order; an unknown one is answered with the nearest known."""
    names = [name.strip() for name in joined.split("+")]
    for name in names:
        if name not in METHODS:
            raise ConfigError(f"there is no method {name!r}{nearest(name, METHODS)}")
    return names


def build_method(joined: str, options: Mapping[str, Mapping[str, Any]] | None = None) -> Policy:
    """The policy, or chain of policies, named by ``joined``.

    Args:
        joined: one name, or several joined by ``+`` to chain them.
        options: options per name.

    Returns:
        The policy.
    """
    members = [METHODS[name](**(options or {}).get(name, {})) for name in method_names(joined)]
    return members[0] if len(members) == 1 else Chain(members)
