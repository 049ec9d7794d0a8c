"""The options of `fit`, read off the library's own signatures: nothing is declared twice.

What can be set depends on what is chosen: ``--data cmnist5 --method group-subsampled`` adds ``--cmnist5.correlation``
and ``--group-subsampled.cap``, the fields of those classes. The data set's recipe gives the defaults of the training
settings. A configuration file holds the same options under the same names, and options on the command line win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from holdfast.cli.common.arguments import value_of, with_config
from holdfast.cli.common.model_options import ModelArguments, model_names
from holdfast.cli.common.sections import (
    Section,
    check_configuration,
    configuration,
    data_choice,
    parse_sections,
)
from holdfast.data.catalog import DATASETS
from holdfast.data.own.data_set import OwnData
from holdfast.errors import ConfigError
from holdfast.methods import METHODS, chained, group_source, method_names
from holdfast.presets import preset_for
from holdfast.training.settings import Training

if TYPE_CHECKING:
    from holdfast.auto.options import Auto
    from holdfast.data import DataSet
    from holdfast.spurious import GroupInference
    from holdfast.training.policy import Policy

DEFAULT_DATA = "coloured-digits"
DEFAULT_METHOD = "erm"
#: What stands for a method that is to be chosen, see `holdfast.auto`.
AUTO = "auto"
_PREAMBLE = """Train a model and report how every group fares.

Methods: {methods}. Join several with + to chain them. Those that need groups take the data set's, or those that another
method infers: `--method pde --groups spare`.

`--method auto` tries several briefly, chooses by the validation set and says why; it never sees the test set.

Data sets: {data}; or your own data: a table (csv, parquet, arrow, jsonl), texts, a folder with a folder of images per
class or with images and a metadata.csv, an npz file, hf:NAME. Its columns are named by --label, --attribute, --text,
--image, --split, --time, or guessed, and a guess is printed: `holdfast fit --data wards.csv --help` shows the options.

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
        data: a data set's name, or your own data: a file, a folder, or hf:NAME.
        method: a method's name, several joined by +, or auto.
        groups: the method that infers the groups that `method` needs: spare, jtt, ...; the data set's by default.
        preset: published settings by name, where a method has several on a data set; the first of them by default.
        model: a model's name, my_package.module:Net, hf:NAME or timm:NAME; the data set's recipe names one.
        model_args: arguments of the model's own, as in hidden=64 'widths=[32, 16]'.
        weights: a file with the model's weights to start from, `imagenet` or (text) `hub` for the published ones.
        head: name of the model's last linear layer, for methods that need it, where it can't be found.
        data_root: where data sets live; HOLDFAST_DATA or ~/.cache/holdfast/data by default.
        out: the run directory; runs/DATA-METHOD-sSEED by default.
        track: also log to these trackers: tensorboard, mlflow, wandb.
        strict: end with exit code 3 if a health check of the result fails: if an assumption of the method does not
            hold, or the result is no better than guessing.
        reference: what plain training on the same data makes, for comparison: a finished run, `beside` to train it
            first (in OUT/plain, at the cost of one more training), or none. By default beside where the method guesses
            at groups that it is not told.
        processes: train with this many processes of this machine, each on its share of every mini-batch; results are
            those of one process but for rounding (and batch norm, which normalises each share by itself). A run may be
            continued with another number. torchrun and `accelerate launch -m holdfast fit` do it on several machines.
        resume: continue the run in this directory, with the options it was started with.
        config: read options from this file first.
        print_config: print all options as a configuration file, and stop.
    """

    task: Annotated[Literal["classify"], tyro.conf.arg(metavar="{classify,clip}")] = "classify"
    data: str = DEFAULT_DATA
    method: str = DEFAULT_METHOD
    groups: str | None = None
    preset: str | None = None
    model: str = "mlp"
    model_args: ModelArguments = field(default_factory=dict)
    weights: str | None = None
    head: str | None = None
    data_root: Path | None = None
    out: Path | None = None
    track: tuple[Literal["tensorboard", "mlflow", "wandb"], ...] = ()
    strict: bool = False
    reference: str | None = None
    processes: int = 1
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
        auto: how the method is to be chosen, where it is not named.
    """

    choices: FitChoices
    training: Training
    data: DataSet
    methods: tuple[Policy, ...]
    source: GroupInference | None = None
    auto: Auto | None = None

    @property
    def policy(self) -> Policy:
        """The chosen methods, chained where there are several."""
        return chained(self.methods, self.source)

    def config(self) -> dict[str, Any]:
        """What determines the run, as a configuration file holds it."""
        own = [self.data.reading] if isinstance(self.data, OwnData) else []
        sections: dict[str, Any] = {} if own else {self.data.name: self.data}
        if self.auto is not None:
            sections[AUTO] = self.auto
        else:
            sections |= dict(zip(method_names(self.choices.method), self.methods, strict=True))
        if self.source is not None:
            sections[self.source.name] = self.source
        return configuration(self.choices, self.training, *own, sections=sections)

    def plain(self) -> FitOptions:
        """The same with plain training."""
        choices = replace(self.choices, method=DEFAULT_METHOD, groups=None, preset=None, reference=None)
        return replace(self, choices=choices, methods=(METHODS[DEFAULT_METHOD](),), source=None, auto=None)


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
    return _parse_for(data, method, typed, groups=groups, preset=preset, settings=settings, file=file)


def _parse_for(
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
    names = [] if method == AUTO else method_names(method)
    if groups is not None and not names:
        raise ConfigError("auto tries methods that infer groups themselves; leave --groups out, or name the method")
    known = DATASETS[data].name if data in DATASETS else OwnData.name
    published = preset_for(known, method, preset)
    chosen = data_choice(data, DATASETS, typed, options=published.data_options, settings=settings)
    recipe: dict[str, Any] = {**chosen.recipe, **published.training}
    model, weights = recipe.pop("model", FitChoices.model), recipe.pop("weights", None)
    if ":" in (value_of("model", typed) or ""):
        weights = None  # the recipe's are for the recipe's model
    methods = {name: (METHODS[name], published.options) for name in names}
    if groups is not None:
        methods[groups] = (group_source(groups, names), preset_for(known, groups).options)
    sections = {
        "choices": Section(FitChoices, partial(FitChoices, model=model, weights=weights)),
        "training": Section(Training, partial(Training, **recipe)),
        "data": chosen.section,
    }
    for name, (policy, options) in methods.items():
        sections[f"method {name}"] = Section(policy, partial(policy, **options), name)
    if not names:
        from holdfast.auto.options import Auto

        sections[AUTO] = Section(Auto, Auto, AUTO)
    if settings:
        named = {section.name: section.kind for section in sections.values() if section.name}
        check_configuration(settings, (FitChoices, Training, *chosen.own_options), named, file)
    about = _PREAMBLE.format(
        methods=", ".join(METHODS),
        data=", ".join(DATASETS),
        models=model_names(),
    )
    parsed = parse_sections(typed, sections, program="holdfast fit", about=about)
    policies = tuple(parsed[f"method {name}"] for name in names)
    source = None if groups is None else parsed[f"method {groups}"]
    choices = parsed["choices"] if chosen.place is None else replace(parsed["choices"], data=chosen.place)
    return FitOptions(choices, parsed["training"], chosen.made(parsed["data"]), policies, source, parsed.get(AUTO))
