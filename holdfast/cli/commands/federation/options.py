"""The options of `federate`, read off the library's classes as those of `fit` are.

What can be set depends on what is chosen: ``--personalize ditto --objective term`` adds ``--ditto.lambda`` and
``--term.t``. The data set's recipe gives the defaults of rounds, cohort, local work and step size.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import tyro

from holdfast.cli.common.arguments import NOT_CONFIGURATION, check_keys, configurable, value_of, with_config
from holdfast.data.clients.federations import FEDERATIONS, FederatedData, TrainingRecipe, federation
from holdfast.errors import ConfigError
from holdfast.federated import (
    AGGREGATORS,
    ATTACKS,
    OBJECTIVES,
    PERSONALIZATION,
    Aggregator,
    Attack,
    FederatedObjective,
    Personalizer,
    Rounds,
    Threat,
)
from holdfast.federated.aggregation import aggregator_names, build_aggregator
from holdfast.federated.personalization import Ditto, strong_attack
from holdfast.federated.personalization.ditto.adaptive import CANDIDATES
from holdfast.federated.personalization.policies import WithPolicy
from holdfast.integrations.flower.settings import FlowerSettings
from holdfast.methods import METHODS
from holdfast.models import MODELS
from holdfast.training.policy import Policy
from holdfast.training.run import plain_values

DEFAULT_DATA = "digits-clients"
_NONE = "none"
_PREAMBLE = """Simulate a federation: clients train on data of their own, a server combines what they send, some of \
them may attack, and every client may have a model of its own. The report says how every client fares.

Data sets: {data}. Any of `holdfast data list` is dealt out to clients: `--data mnist --partitioned.clients 100`.

Objectives of the shared model: {objectives}.

Aggregators: {aggregators}. Join a step and a rule with +, as in `clipping+krum`.

Attacks: {attacks}. Say how many clients are malicious, as in `--attack a1 --malicious 0.2`.

Personal models: {personalizers}. Methods of `holdfast fit` run inside clients too: {inside}. Join several with + to \
compare them in one run; `none` for none.

Models: {models}.

Below are the options of all runs, then those of what was chosen: name that first to see its options, as in `holdfast \
federate --objective term --personalize ditto --help`. Defaults are the data set's published recipe.

Examples: `holdfast federate`; `holdfast federate --attack a1 --malicious 0.5 --aggregate multi-krum`; `holdfast \
federate --data fashion-mnist --personalize ditto+local+finetuning --rounds 500`; `holdfast federate --engine flower \
--nodes 4`; `holdfast federate --resume runs/mine`."""

Part = TypeVar("Part")


@dataclass(frozen=True)
class FederateChoices:
    """Whose data, which methods, and where to write.

    Attributes:
        data: a federated data set, or a pooled one that is dealt out to clients.
        model: a model's name; the data set's recipe names one.
        weights: a file of weights to start from, or imagenet for public ones; the data set's recipe may name some.
        objective: what the shared model is trained for.
        aggregate: how the server combines what clients send; steps and a rule joined by +.
        attack: what malicious clients do.
        malicious: share of clients that are malicious, from 0 to below 1.
        malicious_known: whether the server knows that share and tells its aggregator.
        personalize: methods that give each client a model of its own, joined by +; none for the shared model only.
        data_root: where data sets live; HOLDFAST_DATA or ~/.cache/holdfast/data by default.
        out: the run directory; runs/DATA-... by default.
        track: also log to these trackers: tensorboard, mlflow.
        resume: continue the run in this directory, with the options it was started with.
        engine: simulate the federation in this process, or run it on Flower's SuperLink and SuperNodes on this machine.
        app: write the federation as a Flower app for `flwr run` into this folder, and stop.
        config: read options from this file first.
        print_config: print all options as a configuration file, and stop.
    """

    data: str = DEFAULT_DATA
    model: str = "softmax"
    weights: str = ""
    objective: str = "fedavg"
    aggregate: str = "mean"
    attack: str | None = None
    malicious: float = 0.0
    malicious_known: bool = True
    personalize: str = "ditto"
    data_root: Path | None = None
    out: Path | None = None
    track: tuple[Literal["tensorboard", "mlflow"], ...] = ()
    resume: Path | None = None
    engine: Literal["simulator", "flower"] = "simulator"
    app: Path | None = None
    config: Path | None = None
    print_config: bool = False


@dataclass(frozen=True)
class FederateOptions:
    """Everything `federate` was asked for.

    Attributes:
        choices: whose data, which methods, where to.
        settings: rounds, cohort, local work.
        data: the data set with its options.
        objective: what the shared model is trained for.
        aggregator: how updates are combined.
        attack: what malicious clients do, if there are some.
        methods: of personalization, in the order of their names.
        flower: nodes, timeouts and what to do when few answer, where the engine is Flower.
        sections: the parts with options, by their names in a configuration file.
    """

    choices: FederateChoices
    settings: Rounds
    data: FederatedData
    objective: FederatedObjective
    aggregator: Aggregator
    attack: Attack | None
    methods: tuple[Personalizer, ...]
    flower: FlowerSettings | None
    sections: Mapping[str, Any]

    @property
    def threat(self) -> Threat | None:
        """Who attacks and how, if somebody does."""
        if self.attack is None:
            return None
        return Threat(self.attack, self.choices.malicious, known=self.choices.malicious_known)

    @property
    def personalizers(self) -> list[Personalizer]:
        """The methods of personalization, with what the data set publishes for such an attack."""
        return [_settled(method, self.data.recipe, self.threat) for method in self.methods]

    @property
    def title(self) -> str:
        """What is run, in a few words."""
        said = [Path(self.choices.data).name, self.choices.objective]
        if self.choices.aggregate != "mean":
            said.append(self.choices.aggregate)
        if self.attack is not None:
            said.append(f"{self.attack.name} {self.choices.malicious:g}")
        return ", ".join([*said, *personalizer_names(self.choices.personalize)])

    def config(self) -> dict[str, Any]:
        """What determines the run, as a configuration file holds it."""
        choices = {key: value for key, value in asdict(self.choices).items() if key not in NOT_CONFIGURATION}
        sections = {name: _options_of(part) for name, part in self.sections.items()}
        if self.flower is None:
            del choices["engine"]
        flower = {} if self.flower is None else asdict(self.flower)
        return dict(plain_values({**choices, **asdict(self.settings), **flower, **sections}))


def parse(arguments: Sequence[str]) -> FederateOptions:
    """Options of `federate` from the command line and the configuration file it names.

    Args:
        arguments: as typed.

    Returns:
        The options, checked as far as they can be without the data.

    Raises:
        ConfigError: if a name, a file or a key is unknown, or options contradict each other.
    """
    typed, settings, file = with_config(arguments)
    data = federation(value_of("data", typed) or FederateChoices.data)
    attack = value_of("attack", typed)
    objective = OBJECTIVES.find(value_of("objective", typed) or FederateChoices.objective)
    rules = aggregator_names(value_of("aggregate", typed) or FederateChoices.aggregate)
    methods = personalizer_names(value_of("personalize", typed) or FederateChoices.personalize)
    parts: dict[str, Any] = {data.name: data, objective.name: objective()}
    parts |= {name: AGGREGATORS[name]() for name in rules}
    if attack is not None:
        parts[attack] = ATTACKS.find(attack)()
    parts |= {name: _with_recipe(name, data.recipe) for name in methods}
    sections = {name: part for name, part in parts.items() if fields(part)}
    on_flower = value_of("engine", typed) == "flower"
    _check_engine(typed, on_flower)
    if settings:
        keys = {name: set(_options_of(part)) for name, part in sections.items()}
        check_keys(
            settings, configurable(FederateChoices, Rounds, *([FlowerSettings] if on_flower else [])), keys, file
        )
    parsed = _typed(typed, data.recipe, sections, on_flower)
    chosen = {name: _plain(part, getattr(parsed, _slot(name), part)) for name, part in parts.items()}
    choices: FederateChoices = parsed.choices
    _check_threat(choices)
    if choices.app is not None and not on_flower:
        raise ConfigError(f"--app {choices.app} writes a Flower app; add --engine flower")
    return FederateOptions(
        choices,
        parsed.settings,
        chosen[data.name],
        chosen[objective.name],
        build_aggregator(choices.aggregate, {name: _fields_of(chosen[name]) for name in rules}),
        None if attack is None else chosen[attack],
        tuple(_inside_clients(name, chosen[name], data.recipe) for name in methods),
        parsed.flower if on_flower else None,
        {name: chosen[name] for name in sections},
    )


def personalizer_names(joined: str) -> list[str]:
    """The methods named by ``"ditto+local"``; an unknown one is answered with the nearest known."""
    if joined == _NONE:
        return []
    names = [name.strip() for name in joined.split("+")]
    for name in names:
        if name not in METHODS:
            PERSONALIZATION.find(name)
        if names.count(name) > 1:
            raise ConfigError(f"the personalization method {name!r} is named twice; give each once")
    return names


def settings_of(recipe: TrainingRecipe) -> Rounds:
    """The published settings of a data set."""
    return Rounds(
        rounds=recipe.rounds,
        cohort=recipe.cohort,
        batch_size=recipe.batch_size,
        local_steps=recipe.local_steps or Rounds.local_steps,
        local_epochs=recipe.local_epochs or None,
        optimizer=recipe.optimizer,
        learning_rate=recipe.learning_rate,
        halve_every=recipe.halve_every or None,
    )


def _typed(typed: Sequence[str], recipe: TrainingRecipe, sections: Mapping[str, Any], on_flower: bool) -> Any:
    """What tyro makes of the words, with a slot for each section."""
    slots: list[tuple[str, Any, Any]] = [
        (
            "choices",
            Annotated[FederateChoices, tyro.conf.arg(name="")],
            field(default=FederateChoices(model=recipe.model, weights=recipe.weights)),
        ),
        ("settings", Annotated[Rounds, tyro.conf.arg(name="")], field(default=settings_of(recipe))),
    ]
    if on_flower:
        slots.append(("flower", Annotated[FlowerSettings, tyro.conf.arg(name="")], field(default=FlowerSettings())))
    for name, part in sections.items():
        kind = _for_tyro(type(part))
        default = field(default_factory=functools.partial(kind, **_fields_of(part)))
        slots.append((_slot(name), Annotated[kind, tyro.conf.arg(name=name)], default))
    description = _PREAMBLE.format(
        data=", ".join(FEDERATIONS),
        objectives=", ".join(OBJECTIVES),
        aggregators=", ".join(AGGREGATORS),
        attacks=", ".join(ATTACKS),
        personalizers=", ".join(PERSONALIZATION),
        inside=", ".join(name for name in METHODS if name not in PERSONALIZATION),
        models=", ".join(sorted(MODELS)),
    )
    arguments = make_dataclass("FederateArguments", slots)
    return tyro.cli(arguments, args=list(typed), prog="holdfast federate", description=description)


def _for_tyro(part: type) -> Any:
    """The class with an option called ``lambda`` for a field called ``lambda_``."""
    hints = get_type_hints(part, include_extras=True)
    renamed: list[tuple[str, Any, Any]] = [
        (f.name, Annotated[hints[f.name], tyro.conf.arg(name=f.name.rstrip("_"))], _default_of(f))
        for f in fields(part)
        if f.init
    ]
    frozen: bool = part.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return make_dataclass(part.__name__, renamed, bases=(part,), frozen=frozen, namespace={"__doc__": part.__doc__})


def _default_of(option: Field[Any]) -> Any:
    if option.default_factory is not MISSING:
        return field(default_factory=option.default_factory)
    return field(default=option.default)


def _plain(default: Part, parsed: Any) -> Part:
    """What was parsed, as the class that the library knows."""
    return type(default)(**_fields_of(parsed))


def _fields_of(part: Any) -> dict[str, Any]:
    return {f.name: getattr(part, f.name) for f in fields(part) if f.init}


def _options_of(part: Any) -> dict[str, Any]:
    return {name.rstrip("_"): value for name, value in _fields_of(part).items()}


def _slot(name: str) -> str:
    return "of_" + name.replace("-", "_")


def _with_recipe(name: str, recipe: TrainingRecipe) -> Personalizer | Policy:
    """A personalization method with the data set's published settings, or a policy of `fit` for inside clients."""
    if name not in PERSONALIZATION:
        return METHODS[name]()
    method = PERSONALIZATION[name]
    options: dict[str, Any] = {}
    if "epochs" in {f.name for f in fields(method)}:
        options["epochs"] = recipe.finetune_epochs
    return method(**options)


def _inside_clients(name: str, part: Personalizer | Policy, recipe: TrainingRecipe) -> Personalizer:
    if isinstance(part, Policy):
        return WithPolicy(policy=part, epochs=recipe.finetune_epochs, called=name)
    return part


def _settled(method: Personalizer, recipe: TrainingRecipe, threat: Threat | None) -> Personalizer:
    """Ditto with the data set's candidates for lambda, where it has others than usual and none were given."""
    strong = strong_attack(threat)
    published = recipe.strong if strong else recipe.weak
    if isinstance(method, Ditto) and isinstance(method.lambda_, str) and not method.candidates:
        return replace(method, candidates=() if published == CANDIDATES[strong] else published)
    return method


def _check_engine(typed: Sequence[str], on_flower: bool) -> None:
    for option in (f.name for f in fields(FlowerSettings)):
        for spelling in {option, option.replace("_", "-")}:
            if not on_flower and value_of(spelling, typed) is not None:
                raise ConfigError(f"--{spelling} is for federations on Flower; add --engine flower")


def _check_threat(choices: FederateChoices) -> None:
    if not 0 <= choices.malicious < 1:
        raise ConfigError(
            f"--malicious is {choices.malicious:g}, which is the share of clients that attack; give a number from 0 to "
            "below 1"
        )
    if choices.attack is None and choices.malicious:
        raise ConfigError(
            f"--malicious {choices.malicious:g} says how many attack but not how; add --attack a1, for instance"
        )
    if choices.attack is not None and not choices.malicious:
        raise ConfigError(f"--attack {choices.attack} needs somebody who attacks; add --malicious 0.2, for instance")
