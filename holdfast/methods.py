"""Every method by the name it has on the command line; the fields of each are its options.

A method is a policy, with the objective and the last step that belong to it. Names joined by ``+`` chain. Where groups
are needed, they are the data set's, or those that another method infers: ``pde`` with the groups of ``spare``. A method
is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast import spurious, training
from holdfast.errors import ConfigError, nearest
from holdfast.lazy import LazyTable

if TYPE_CHECKING:
    from holdfast.spurious import GroupInference
    from holdfast.training.policy import Policy

METHODS: LazyTable[type[Policy]] = LazyTable(
    "method",
    {
        "erm": "holdfast.training:Uniform",
        "class-balanced": "holdfast.spurious:ClassBalanced",
        "group-balanced": "holdfast.spurious:GroupBalanced",
        "group-weighted": "holdfast.spurious:GroupWeighted",
        "group-subsampled": "holdfast.spurious:GroupSubsampled",
        "group-dro": "holdfast.spurious:GroupDRO",
        "cvar": "holdfast.spurious:CvarDRO",
        "jtt": "holdfast.spurious:Jtt",
        "lff": "holdfast.spurious:Lff",
        "eiil": "holdfast.spurious:Eiil",
        "pgi": "holdfast.spurious:Pgi",
        "george": "holdfast.spurious:George",
        "cnc": "holdfast.spurious:Cnc",
        "ssa": "holdfast.spurious:Ssa",
        "dfr-train": "holdfast.spurious:DfrTrain",
        "dfr-val": "holdfast.spurious:DfrVal",
        "pde": "holdfast.spurious:Pde",
        "spare": "holdfast.spurious:Spare",
        "stratified": "holdfast.coresets:Stratified",
        "crest": "holdfast.coresets:Crest",
        "craig": "holdfast.coresets:Craig",
        "gradmatch": "holdfast.coresets:GradMatch",
        "glister": "holdfast.coresets:Glister",
        "el2n": "holdfast.coresets:El2n",
        "grand": "holdfast.coresets:Grand",
        "forgetting": "holdfast.coresets:Forgotten",
        "ccs": "holdfast.coresets:Coverage",
        "dynamic-pruning": "holdfast.coresets:DynamicPruning",
        "epic": "holdfast.poisoning:Epic",
        "deep-knn": "holdfast.poisoning.defenses:DeepKnn",
        "spectral-signatures": "holdfast.poisoning.defenses:SpectralSignatures",
        "activation-clustering": "holdfast.poisoning.defenses:ActivationClustering",
        "dp-sgd": "holdfast.poisoning.defenses:DpSgd",
        "adversarial-poisoning": "holdfast.poisoning.defenses:AdversarialPoisoning",
        "highest-loss": "holdfast.poisoning.defenses:HighestLoss",
        "lowest-confidence": "holdfast.poisoning.defenses:LowestConfidence",
    },
)

#: The methods that fine-tune a vision-language model (`holdfast fit --task clip`); the last three train a linear layer
#: on its frozen embeddings, and ``zero-shot`` trains nothing.
CLIP_METHODS: LazyTable[type[Policy]] = LazyTable(
    "method for vision-language models",
    {
        "spurious-aware": "holdfast.multimodal:SpuriousAware",
        "fine-tuned-clip": "holdfast.multimodal:FineTunedClip",
        "erm": "holdfast.training:Uniform",
        "group-dro": "holdfast.spurious:GroupDRO",
        "zero-shot": "holdfast.training:Uniform",
        "linear-probe": "holdfast.training:Uniform",
        "dfr-train": "holdfast.spurious:DfrTrain",
        "dfr-val": "holdfast.spurious:DfrVal",
    },
)

#: The methods whose groups any other can use: those that are a `GroupInference`.
GROUP_SOURCES = ("jtt", "eiil", "pgi", "george", "cnc", "ssa", "spare")


def method_names(joined: str) -> list[str]:
    """The methods named by ``"epic+crest"``, in order; an unknown one is answered with the nearest known."""
    names = [name.strip() for name in joined.split("+")]
    for name in names:
        METHODS.expect(name)
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
    return cast("type[GroupInference]", METHODS[name])


def chained(policies: Sequence[Policy], source: GroupInference | None = None) -> Policy:
    """The policies one after the other, behind the one whose groups they use."""
    members = [*([spurious.InferGroups(source)] if source is not None else []), *policies]
    return members[0] if len(members) == 1 else training.Chain(members)


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
