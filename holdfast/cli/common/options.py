"""The options of `fit`, read off the library's own signatures: nothing is declared twice.

What can be set depends on what is chosen: ``--data cmnist5 --method group-subsampled`` adds ``--cmnist5.correlation``
and ``--group-subsampled.cap``, the fields of those classes. The data set's recipe gives the defaults of the training
settings. A configuration file holds the same options under the same names, and options on the command line win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, make_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from holdfast.cli.common.arguments import NOT_CONFIGURATION, check_keys, configurable, value_of, with_config
from holdfast.data import DATASETS, DataSet
from holdfast.data.catalog import find
from holdfast.errors import ConfigError, nearest
from holdfast.methods import METHODS, chained, group_source, method_names
from holdfast.models import MODELS
from holdfast.presets import preset_for
from holdfast.spurious import GroupInference
from holdfast.training.policy import Policy
from holdfast.training.run import plain_values
from holdfast.training.settings import Training

DEFAULT_DATA = "coloured-digits"
DEFAULT_METHOD = "erm"
_PREAMBLE = """Train a model and report how every group fares.

Methods: {methods}. Join several with + to chain them. Those that need groups take the data set's, or those that another
method infers: `--method pde --groups spare`.

Data sets: {data}; or a folder with images and a metadata.csv.

Models: {models}.

Vision-language models are fine-tuned with `--task clip`: see `holdfast fit --task clip --help`.

Below are the options of all runs, then those of the chosen data set and method: name these first to see theirs, as in
`holdfast fit --data cmnist5 --method group-subsampled --help`. Defaults are the data set's published recipe.

Examples: `holdfast fit --method group-balanced`; `holdfast fit --data photos/ --method group-balanced --model resnet18
--epochs 20`; `holdfast fit --config run.yaml --learning-rate 0.001`; `holdfast fit --resume runs/mine`."""


@dataclass(frozen=True)
class FitChoices:
    """What to train on, with what, and where to write.

    Attributes:
        task: classify trains a network on labels; clip fine-tunes a vision-language model and has options of its own.
        data: a data set's name, or a folder with images and a metadata.csv.
        method: a method's name, or several joined by +.
        groups: the method that infers the groups that `method` needs: spare, jtt, ...; the data set's by default.
        preset: published settings by name, where a method has several on a data set; the first of them by default.
        model: a model's name; the data set's recipe names one.
        weights: a file with the model's weights to start from, `imagenet` or (text) `hub` for the published ones.
        data_root: where data sets live; HOLDFAST_DATA or ~/.cache/holdfast/data by default.
        out: the run directory; runs/DATA-METHOD-sSEED by default.
        track: also log to these trackers: tensorboard, mlflow.
        resume: continue the run in this directory, with the options it was started with.
        config: read options from this file first.
        print_config: print all options as a configuration file, and stop.
    """

    task: Literal["classify"] = "classify"
    data: str = DEFAULT_DATA
    method: str = DEFAULT_METHOD
    groups: str | None = None
    preset: str | None = None
    model: str = "mlp"
    weights: str | None = None
    data_root: Path | None = None
    out: Path | None = None
    track: tuple[Literal["tensorboard", "mlflow"], ...] = ()
    resume: Path | None = None
    config: Path | None = None
    print_config: bool = False


@dataclass(frozen=True)
class FitOptions:
    """Everything `fit` was asked for.

    Attributes:
        choices: what, with what, where to.
        training: how long and how fast.
        data: the data set with its options.
        methods: the policies with their options, in order.
        source: what infers the groups, with its options; none for the data set's.
    """

    choices: FitChoices
    training: Training
    data: DataSet
    methods: tuple[Policy, ...]
    source: GroupInference | None = None

    @property
    def policy(self) -> Policy:
        """The chosen methods, chained where there are several."""
        return chained(self.methods, self.source)

    def config(self) -> dict[str, Any]:
        """What determines the run, as a configuration file holds it."""
        choices = {key: value for key, value in asdict(self.choices).items() if key not in NOT_CONFIGURATION}
        sections = {self.data.name: asdict(self.data)}
        names = method_names(self.choices.method)
        sections |= {name: _fields_of(policy) for name, policy in zip(names, self.methods, strict=True)}
        if self.source is not None:
            sections[self.source.name] = _fields_of(self.source)
        merged = {**choices, **asdict(self.training), **{name: part for name, part in sections.items() if part}}
        return dict(plain_values(merged))


def parse(arguments: Sequence[str]) -> FitOptions:
    """Options of `fit` from the command line and the configuration files it names.

    Args:
        arguments: as typed.

    Returns:
        The options, checked.

    Raises:
        ConfigError: if a file, a key of it, a data set or a method is unknown.
    """
    typed, settings, file = with_config(arguments)
    if value_of("task", typed) == "clip":
        raise ConfigError(
            f"{file or 'the command'} is about a vision-language model; `holdfast fit --task clip` tunes one and "
            "`holdfast audit multimodal` looks into it"
        )
    data = value_of("data", typed) or DEFAULT_DATA
    method = value_of("method", typed) or DEFAULT_METHOD
    groups, preset = value_of("groups", typed), value_of("preset", typed)
    return parse_for(data, method, typed, groups=groups, preset=preset, settings=settings, file=file)


def parse_for(
    data: str,
    method: str,
    typed: Sequence[str],
    *,
    groups: str | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    file: str | None = None,
) -> FitOptions:
    """Options for a given data set and method; their fields become options too."""
    data_class, folder = named_data(data)
    names = method_names(method)
    published = preset_for(data_class.name, method, preset)
    recipe = {**data_class.recipe, **published.training}
    model, weights = str(recipe.pop("model", FitChoices.model)), recipe.pop("weights", None)
    chosen = FitChoices(model=model, weights=None if weights is None else str(weights))
    training = Training(**recipe)
    parts: list[tuple[str, Any, Any]] = [
        ("choices", Annotated[FitChoices, tyro.conf.arg(name="")], field(default=chosen)),
        ("training", Annotated[Training, tyro.conf.arg(name="")], field(default=training)),
    ]
    data_default = _default(data_class, folder, published.data_options)
    parts.append(("data", Annotated[data_class, tyro.conf.arg(name=data_class.name)], data_default))
    sections: dict[str, type[Policy]] = {name: METHODS[name] for name in names}
    if groups is not None:
        sections[groups] = group_source(groups, names)
    for place, (name, policy) in enumerate(sections.items()):
        options = preset_for(data_class.name, name).options if name == groups else published.options
        default = field(default_factory=partial(policy, **options) if options else policy)
        parts.append((f"method{place}", Annotated[policy, tyro.conf.arg(name=name)], default))
    parts.sort(key=lambda part: part[2].default is not MISSING or part[2].default_factory is not MISSING)
    if settings:
        named = {data_class.name: data_class, **sections}
        keys = {name: {f.name for f in fields(part)} for name, part in named.items()}  # type: ignore[arg-type]
        check_keys(settings, configurable(FitChoices, Training), keys, file)
    description = _PREAMBLE.format(
        methods=", ".join(METHODS), data=", ".join(DATASETS), models=", ".join(sorted(MODELS))
    )
    parsed: Any = tyro.cli(
        make_dataclass("FitArguments", parts), args=list(typed), prog="holdfast fit", description=description
    )
    policies = tuple(getattr(parsed, f"method{place}") for place in range(len(names)))
    source = None if groups is None else getattr(parsed, f"method{len(names)}")
    return FitOptions(parsed.choices, parsed.training, parsed.data, policies, source)


def named_data(data: str) -> tuple[type[DataSet], Path | None]:
    """The data set that ``--data`` names, and the folder with images where it names one.

    Raises:
        ConfigError: if it is neither.
    """
    folder = Path(data).resolve() if data not in DATASETS and Path(data).is_dir() else None
    if folder is None and data not in DATASETS:
        raise ConfigError(f"there is no data set and no folder {data!r}{nearest(data, DATASETS)}")
    return find("folder" if folder is not None else data), folder


def _default(data_class: type[DataSet], folder: Path | None, options: Mapping[str, Any]) -> Any:
    if folder is not None:
        return field(default=data_class(path=folder))  # type: ignore[call-arg]
    required = [f for f in fields(data_class) if f.default is MISSING and f.default_factory is MISSING]
    return field() if required else field(default_factory=partial(data_class, **options))


def _fields_of(policy: Policy) -> dict[str, Any]:
    return {f.name: getattr(policy, f.name) for f in fields(policy) if f.init and not f.name.startswith("_")}  # type: ignore[arg-type]
