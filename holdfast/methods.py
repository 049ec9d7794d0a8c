"""Every method by the name it has on the command line; the fields of each are its options.

A method is a policy, with the objective and the last step that belong to it. Names joined by ``+`` chain. Where groups
are needed, they are the data set's, or those that another method infers: ``pde`` with the groups of ``spare``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.coresets import Craig, Crest, El2n, Forgotten, Glister, GradMatch, Grand
from holdfast.errors import ConfigError, nearest
from holdfast.multimodal import FineTunedClip, SpuriousAware
from holdfast.poisoning import Epic
from holdfast.poisoning.defenses import (
    ActivationClustering,
    AdversarialPoisoning,
    DeepKnn,
    DpSgd,
    HighestLoss,
    LowestConfidence,
    SpectralSignatures,
)
from holdfast.spurious import (
    ClassBalanced,
    Cnc,
    CvarDRO,
    DfrTrain,
    DfrVal,
    Eiil,
    George,
    GroupBalanced,
    GroupDRO,
    GroupInference,
    GroupSubsampled,
    GroupWeighted,
    InferGroups,
    Jtt,
    Lff,
    Pde,
    Pgi,
    Spare,
    Ssa,
)
from holdfast.training.policy import Chain, Policy, Uniform

METHODS: dict[str, type[Policy]] = {
    "erm": Uniform,
    "class-balanced": ClassBalanced,
    "group-balanced": GroupBalanced,
    "group-weighted": GroupWeighted,
    "group-subsampled": GroupSubsampled,
    "group-dro": GroupDRO,
    "cvar": CvarDRO,
    "jtt": Jtt,
    "lff": Lff,
    "eiil": Eiil,
    "pgi": Pgi,
    "george": George,
    "cnc": Cnc,
    "ssa": Ssa,
    "dfr-train": DfrTrain,
    "dfr-val": DfrVal,
    "pde": Pde,
    "spare": Spare,
    "crest": Crest,
    "craig": Craig,
    "gradmatch": GradMatch,
    "glister": Glister,
    "el2n": El2n,
    "grand": Grand,
    "forgetting": Forgotten,
    "epic": Epic,
    "deep-knn": DeepKnn,
    "spectral-signatures": SpectralSignatures,
    "activation-clustering": ActivationClustering,
    "dp-sgd": DpSgd,
    "adversarial-poisoning": AdversarialPoisoning,
    "highest-loss": HighestLoss,
    "lowest-confidence": LowestConfidence,
}

#: The methods that fine-tune a vision-language model (`holdfast fit --task clip`); the last three train a linear layer
#: on its frozen embeddings, and ``zero-shot`` trains nothing.
CLIP_METHODS: dict[str, type[Policy]] = {
    "spurious-aware": SpuriousAware,
    "fine-tuned-clip": FineTunedClip,
    "erm": Uniform,
    "group-dro": GroupDRO,
    "zero-shot": Uniform,
    "linear-probe": Uniform,
    "dfr-train": DfrTrain,
    "dfr-val": DfrVal,
}

#: The methods whose groups any other can use.
GROUP_SOURCES: dict[str, type[GroupInference]] = {
    name: method for name, method in METHODS.items() if issubclass(method, GroupInference)
}


def method_names(joined: str) -> list[str]:
    """The methods named by ``"epic+crest"``, in order; an unknown one is answered with the nearest known."""
    names = [name.strip() for name in joined.split("+")]
    for name in names:
        if name not in METHODS:
            raise ConfigError(f"there is no method {name!r}{nearest(name, METHODS)}")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{joined} names {', '.join(repeated)} more than once; name every method once")
    return names


def group_source(name: str, methods: Sequence[str]) -> type[GroupInference]:
    """The method that infers groups for others, by name.

    Raises:
        ConfigError: if there is no such method, or it is one of `methods` itself.
    """
    if name not in GROUP_SOURCES:
        raise ConfigError(f"no method called {name!r} infers groups{nearest(name, GROUP_SOURCES)}")
    if name in methods:
        raise ConfigError(f"{name} infers its own groups; leave groups out, or give them to another method")
    return GROUP_SOURCES[name]


def chained(policies: Sequence[Policy], source: GroupInference | None = None) -> Policy:
    """The policies one after the other, behind the one whose groups they use."""
    members = [*([InferGroups(source)] if source is not None else []), *policies]
    return members[0] if len(members) == 1 else Chain(members)


def build_method(
    joined: str, options: Mapping[str, Mapping[str, Any]] | None = None, groups: str | None = None
) -> Policy:
    """The policy, or chain of policies, named by ``joined``.

    Args:
        joined: one name, or several joined by ``+`` to chain them.
        options: options per name.
        groups: the method that infers the groups, instead of those of the data set.

    Returns:
        The policy.

    Example:
        >>> [member.name for member in build_method("pde", groups="spare").members]
        ['groups', 'pde']
    """
    chosen, names = options or {}, method_names(joined)
    source = None if groups is None else group_source(groups, names)(**chosen.get(groups, {}))
    return chained([METHODS[name](**chosen.get(name, {})) for name in names], source)
