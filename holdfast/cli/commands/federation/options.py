"""The options of `federate`, read off the library's classes as those of `fit` are.

What can be set depends on what is chosen: ``--personalize ditto --objective term`` adds ``--ditto.lambda`` and
``--term.t``. The data set's recipe gives the defaults of rounds, cohort, local work and step size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from holdfast.cli.common.arguments import as_arguments, value_of, with_config
from holdfast.cli.common.model_options import ModelArguments, model_names
from holdfast.cli.common.sections import (
    Section,
    check_configuration,
    configuration,
    fields_of,
    found_anywhere,
    own_place,
    parse_sections,
)
from holdfast.data.catalog import DATASETS
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
)
from holdfast.federated.aggregation import aggregator_names, build_aggregator
from holdfast.federated.expectation import Expectation
from holdfast.federated.server.optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from holdfast.federated.server.privacy import ClientPrivacy
from holdfast.integrations.flower.settings import FlowerSettings
from holdfast.methods import METHODS
from holdfast.training.policy import Policy

if TYPE_CHECKING:
    from holdfast.data.own.options import ReadingOptions
    from holdfast.federated.attacks.threat import Threat

DEFAULT_DATA = "digits-clients"
#: What stands for data that only the nodes of a federation have.
AT_NODES = "nodes"
_NONE = "none"
_PRIVACY = "privacy"  # name of the section with the options of differential privacy
_DEALT = "partitioned"  # what deals out data that does not say whose each row is
_PREAMBLE = """Simulate a federation: clients train on data of their own, a server combines what they send, some of \
them may attack, and every client may have a model of its own. The report says how every client fares.

Data sets: {data}. Any of `holdfast data list` is dealt out to clients: `--data mnist --partitioned.clients 100`. \
Your own data: `--data wards.csv --label outcome --client ward`, as a table, texts, images or arrays.

Objectives of the shared model: {objectives}.

Aggregators: {aggregators}. Join a step and a rule with +, as in `clipping+krum`.

Server optimizers: {optimizers}. The model moves by one of them in place of the aggregate itself: `--server-optimizer \
fedadam`. With `--private` every client is hidden in noise, and the report says how well: `--private --privacy.epsilon \
8`.

Attacks: {attacks}. Say how many clients are malicious, as in `--attack a1 --malicious 0.2`. The server expects \
as many; `--expect-malicious 0.3` says otherwise, and says it where no attack is rehearsed.

Personal models: {personalizers}. Methods of `holdfast fit` run inside clients too: {inside}. Join several with + to \
compare them in one run; `none` for none.

Models: {models}.

Below are the options of all runs, then those of what was chosen: name that first to see its options, as in `holdfast \
federate --objective term --personalize ditto --help`. Defaults are the data set's published recipe.

Examples: `holdfast federate`; `holdfast federate --attack a1 --malicious 0.2 --aggregate multi-krum --cohort 25`; \
`holdfast federate --data fashion-mnist --personalize ditto+local+finetuning --rounds 500`; `holdfast federate \
--engine flower --nodes 4`; `holdfast federate --resume runs/mine`."""


@dataclass(frozen=True)
class FederateChoices:
    """Whose data, which methods, and where to write.

    Attributes:
        data: a federated data set, a pooled one that is dealt out to clients, or your own data: a file, a folder or
            hf:NAME, with --client for the column that names each row's client.
        model: a model's name, my_package.module:Net, hf:NAME or timm:NAME; the data set's recipe names one.
        model_args: arguments of the model's own, as in hidden=64 'widths=[32, 16]'.
        weights: a file of weights to start from, or imagenet for public ones; the data set's recipe may name some.
        objective: what the shared model is trained for.
        aggregate: how the server combines what clients send; steps and a rule joined by +.
        server_optimizer: moves the shared model by what was combined, in place of adding it.
        private: hide every client by differential privacy, with the options of privacy.
        attack: what malicious clients do.
        malicious: share of clients that are malicious, from 0 to below 1.
        malicious_known: whether the server expects as many as there are; without, it expects none, as with
            --expect-malicious 0.
        personalize: methods that give each client a model of its own, joined by +; none for the shared model only.
        data_root: where data sets live; HOLDFAST_DATA or ~/.cache/holdfast/data by default.
        out: the run directory; runs/DATA-... by default.
        track: also log to these trackers: tensorboard, mlflow, wandb.
        strict: end with exit code 3 if a health check of the federation fails.
        resume: continue the run in this directory, with the options it was started with.
        engine: simulate the federation in this process, or run it on Flower's SuperLink and SuperNodes on this machine.
        app: write the federation as a Flower app for `flwr run` into this folder, and stop.
        config: read options from this file first.
        print_config: print all options as a configuration file, and stop.
    """

    data: str = DEFAULT_DATA
    model: str = "softmax"
    model_args: ModelArguments = field(default_factory=dict)
    weights: str = ""
    objective: str = "fedavg"
    aggregate: str = "mean"
    server_optimizer: str | None = None
    private: bool = False
    attack: str | None = None
    malicious: float = 0.0
    malicious_known: bool = True
    personalize: str = "ditto"
    data_root: Path | None = None
    out: Path | None = None
    track: tuple[Literal["tensorboard", "mlflow", "wandb"], ...] = ()
    strict: bool = False
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
        expectation: how many malicious clients the server defends itself against.
        server_optimizer: how the shared model moves, where it isn't by the aggregate itself.
        privacy: how clients are hidden, where they are.
        flower: nodes, timeouts and what to do when few answer, where the engine is Flower.
        sections: the parts with options, by their names in a configuration file.
        reading: which column says what, where the data is the user's own.
    """

    choices: FederateChoices
    settings: Rounds
    data: FederatedData
    objective: FederatedObjective
    aggregator: Aggregator
    attack: Attack | None
    methods: tuple[Personalizer, ...]
    expectation: Expectation
    server_optimizer: ServerOptimizer | None
    privacy: ClientPrivacy | None
    flower: FlowerSettings | None
    sections: Mapping[str, Any]
    reading: ReadingOptions | None = None

    @property
    def threat(self) -> Threat | None:
        """Who attacks and how, if somebody does."""
        if self.attack is None:
            return None
        from holdfast.federated.attacks.threat import Threat

        return Threat(self.attack, self.choices.malicious)

    @property
    def personalizers(self) -> list[Personalizer]:
        """The methods of personalization, with what the data set publishes for such an attack."""
        return [_settled(method, self.data.recipe) for method in self.methods]

    @property
    def title(self) -> str:
        """What is run, in a few words."""
        words = [Path(self.choices.data).name, self.choices.objective]
        if self.choices.aggregate != "mean":
            words.append(self.choices.aggregate)
        if self.server_optimizer is not None:
            words.append(self.server_optimizer.name)
        if self.privacy is not None:
            words.append("private")
        if self.attack is not None:
            words.append(f"{self.attack.name} {self.choices.malicious:g}")
        return ", ".join([*words, *personalizer_names(self.choices.personalize)])

    def config(self) -> dict[str, Any]:
        """What determines the run, as a configuration file holds it."""
        on_flower = [] if self.flower is None else [self.flower]
        reading = [] if self.reading is None else [self.reading]
        config = configuration(
            self.choices, self.settings, self.expectation, *on_flower, *reading, sections=self.sections
        )
        if self.flower is None:
            del config["engine"]
        return config


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
    data, place, own = _data(value_of("data", typed) or FederateChoices.data, typed)
    attack = value_of("attack", typed)
    objective = OBJECTIVES.find(value_of("objective", typed) or FederateChoices.objective)
    rules = aggregator_names(value_of("aggregate", typed) or FederateChoices.aggregate)
    methods = personalizer_names(value_of("personalize", typed) or FederateChoices.personalize)
    parts: dict[str, Callable[[], Any]] = {**own, objective.name: objective}
    parts |= {name: AGGREGATORS[name] for name in rules}
    optimizer = value_of("server-optimizer", typed)
    if optimizer is not None:
        parts[optimizer] = SERVER_OPTIMIZERS.find(optimizer)
    if attack is not None:
        parts[attack] = ATTACKS.find(attack)
    if private := _wants_privacy(typed):
        parts[_PRIVACY] = ClientPrivacy
    parts |= {name: _with_recipe(name, data.recipe) for name in methods}
    on_flower = value_of("engine", typed) == "flower"
    _check_engine(typed, on_flower)
    own_model = ":" in (value_of("model", typed) or "")
    recipe = replace(data.recipe, weights="") if own_model else data.recipe  # its weights are for its own model
    top = _sections_of_all(recipe, on_flower)
    if place is not None:
        from holdfast.data.own.options import ReadingOptions

        top["reading"] = Section(ReadingOptions, ReadingOptions)
    named = {name: Section(type(make()), make, name) for name, make in parts.items()}
    with_options = {name: section for name, section in named.items() if fields(section.kind)}
    if settings:
        kinds = {name: section.kind for name, section in with_options.items()}
        check_configuration(settings, [section.kind for section in top.values()], kinds, file)
    slots = {f"of {name}": section for name, section in with_options.items()}
    parsed = parse_sections(typed, {**top, **slots}, program="holdfast federate", about=_about())
    chosen = {name: parsed[f"of {name}"] if name in with_options else make() for name, make in parts.items()}
    choices: FederateChoices = parsed["choices"]
    if place is not None:
        from holdfast.data.clients.own_clients import OwnClients

        choices = replace(choices, data=place)
        data = OwnClients(place, found_anywhere(parsed["reading"]), next((chosen[name] for name in own), None))
    else:
        data = chosen[data.name]
    _check_threat(choices)
    if choices.app is not None and not on_flower:
        raise ConfigError(f"--app {choices.app} writes a Flower app; add --engine flower")
    if choices.app is not None and value_of("data", typed) is None:
        raise ConfigError(
            f"--app {choices.app} would take model and step size from the digits' recipe, whatever nodes have; name "
            "the --data that the app is for, or create a federation with `holdfast federation init`"
        )
    rounds: Rounds = parsed["settings"]
    if choices.app is not None and value_of("sampling", typed) is None:
        rounds = replace(rounds, sampling="uniform")  # elsewhere nobody counts the examples that a client claims
    if private and value_of("sampling", typed) is None:
        rounds = replace(rounds, sampling="poisson")  # what privacy is accounted for
    return FederateOptions(
        choices,
        rounds,
        data,
        chosen[objective.name],
        build_aggregator(choices.aggregate, {name: fields_of(chosen[name]) for name in rules}),
        None if attack is None else chosen[attack],
        tuple(_inside_clients(name, chosen[name], data.recipe) for name in methods),
        _expectation(parsed["expectation"], choices),
        None if optimizer is None else chosen[optimizer],
        chosen[_PRIVACY] if private else None,
        parsed.get("flower"),
        {name: chosen[name] for name in with_options},
        getattr(data, "reading", None),
    )


def as_before(config: Mapping[str, Any]) -> list[str]:
    """Options that a configuration does not have because it was made before them, as everybody had them then.

    There was no expectation of malicious clients, and Ditto's personal models started from the initial weights.
    """
    words = [] if "expect_by" in config else ["--expect-by", "mean"]
    ditto = config.get("ditto")
    if isinstance(ditto, Mapping) and "start" not in ditto:
        words += ["--ditto.start", "initial"]
    return words


def options_from(config: Mapping[str, Any]) -> FederateOptions:
    """The options that a saved configuration says, of an app, a node or a run."""
    return parse([*as_before(config), *as_arguments(config)])


def _data(name: str, typed: Sequence[str]) -> tuple[FederatedData, str | None, dict[str, Callable[[], FederatedData]]]:
    """The data set that ``--data`` names, the place where it is the user's own, and the parts of it with options."""
    if name == AT_NODES:
        from holdfast.data.clients.at_nodes import AtNodes

        if value_of("model", typed) is None:
            raise ConfigError("--data nodes has no recipe, since nobody here has seen the data; say which --model")
        return AtNodes(), None, {AT_NODES: AtNodes}
    place = None if name in FEDERATIONS or name in DATASETS else own_place(name)
    if place is None:
        data = federation(name)
        return data, None, {data.name: lambda: data}
    from holdfast.data.clients.own_clients import OwnClients
    from holdfast.data.own.options import ReadingOptions

    reading, _ = tyro.cli(ReadingOptions, args=list(typed), add_help=False, return_unknown_args=True)
    dealt = {} if reading.client is not None else {_DEALT: partial(federation, _DEALT, source=place)}
    return OwnClients(place, reading), place, dict(dealt)


def personalizer_names(joined: str) -> list[str]:
    """The methods named by ``"ditto+local"``; an unknown one is answered with the nearest known."""
    if joined == _NONE:
        return []
    names = [name.strip() for name in joined.split("+")]
    for name in names:
        if name not in METHODS:
            PERSONALIZATION.expect(name)
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


def _sections_of_all(recipe: TrainingRecipe, on_flower: bool) -> dict[str, Section]:
    """The options of all federations, with the defaults that a data set publishes."""
    choices = partial(FederateChoices, model=recipe.model, weights=recipe.weights)
    sections = {
        "choices": Section(FederateChoices, choices),
        "settings": Section(Rounds, partial(settings_of, recipe)),
        "expectation": Section(Expectation, Expectation),
    }
    return {**sections, "flower": Section(FlowerSettings, FlowerSettings)} if on_flower else sections


def _about() -> str:
    return _PREAMBLE.format(
        data=", ".join(FEDERATIONS),
        objectives=", ".join(OBJECTIVES),
        aggregators=", ".join(AGGREGATORS),
        optimizers=", ".join(SERVER_OPTIMIZERS),
        attacks=", ".join(ATTACKS),
        personalizers=", ".join(PERSONALIZATION),
        inside=", ".join(name for name in METHODS if name not in PERSONALIZATION),
        models=model_names(),
    )


def _with_recipe(name: str, recipe: TrainingRecipe) -> Callable[[], Personalizer | Policy]:
    """What makes a personalization method with the published settings, or a policy of `fit` for inside clients."""
    if name not in PERSONALIZATION:
        return METHODS[name]
    method = PERSONALIZATION[name]
    if "epochs" in {f.name for f in fields(method)}:
        return partial(method, epochs=recipe.finetune_epochs)  # type: ignore[call-arg]
    return method


def _inside_clients(name: str, part: Personalizer | Policy, recipe: TrainingRecipe) -> Personalizer:
    if isinstance(part, Policy):
        from holdfast.federated.personalization.policies import WithPolicy

        return WithPolicy(policy=part, epochs=recipe.finetune_epochs, called=name)
    return part


def _settled(method: Personalizer, recipe: TrainingRecipe) -> Personalizer:
    """Ditto with the data set's candidates for lambda, where it has others than usual and none were given."""
    from holdfast.federated.personalization import Ditto
    from holdfast.federated.personalization.ditto.adaptive import CANDIDATES

    unusual = (recipe.weak, recipe.strong) != (CANDIDATES[False], CANDIDATES[True])
    if unusual and isinstance(method, Ditto) and isinstance(method.lambda_, str) and not method.candidates:
        return replace(method, candidates=recipe.weak, strong_candidates=method.strong_candidates or recipe.strong)
    return method


def _expectation(given: Expectation, choices: FederateChoices) -> Expectation:
    if choices.malicious_known:
        return given
    if given.expect_malicious:
        raise ConfigError(
            f"--no-malicious-known expects no malicious client and --expect-malicious {given.expect_malicious:g} some; "
            "leave one of them out"
        )
    return replace(given, expect_malicious=0.0)


def _wants_privacy(typed: Sequence[str]) -> bool:
    """Whether the last word about it says so, before the real parsing knows which options there are."""
    said = [word for word in typed if word in ("--private", "--no-private")]
    return bool(said) and said[-1] == "--private"


def _check_engine(typed: Sequence[str], on_flower: bool) -> None:
    for option in (f.name.replace("_", "-") for f in fields(FlowerSettings)):
        if not on_flower and value_of(option, typed) is not None:
            raise ConfigError(f"--{option} is for federations on Flower; add --engine flower")


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
        raise ConfigError(f"--attack {choices.attack} needs malicious clients; add --malicious 0.2, for instance")
