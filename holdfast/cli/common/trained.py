"""What commands share that use the model of a run: which run, whose model, and the model itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.data import Clients
    from holdfast.federated.preparation import PreparedFederation
    from holdfast.federated.saved_models import PersonalModels
    from holdfast.models import ModelSpec
    from holdfast.training import Run
    from holdfast.training.model_card import ModelCard
    from holdfast.training.trained import TrainedModel


#: What ``--client`` says for: each example by the model of its own client.
ALL = "all"


def check_personal(client: str | None, method: str | None) -> None:
    """Refuse a personalization method where no client is named.

    Raises:
        ConfigError: if there is one.
    """
    if method is not None and client is None:
        raise ConfigError(f"--method {method} says whose personal models; say of which client with --client")


def file_name(*words: str | None) -> str:
    """A name for a file out of the words that there are, of which some may be a client's or a path's."""
    return re.sub(r"[^\w.-]+", "_", "-".join(word for word in words if word)).lstrip(".")


def usable_run(path: Path, *, best_so_far: bool = False) -> Run:
    """A run whose model can be used.

    Args:
        path: its directory.
        best_so_far: whether the best epoch of a run that is not finished will do.

    Raises:
        ConfigError: if it has no model of a kind that can be used, or is not finished; it says what can be done.
    """
    from holdfast import training
    from holdfast.cli.common.runs import COMMANDS, refuse_selection

    run = training.Run.open(path)
    refuse_selection(run)
    if run.kind == "clip":
        raise ConfigError(
            f"{path} is a vision-language model, which needs its towers and prompts besides weights; "
            "`holdfast audit multimodal` looks into such models, and its test predictions are in predictions.parquet"
        )
    if run.status == "finished" or (best_so_far and run.kind == "fit"):
        return run
    ways = [f"`{COMMANDS[run.kind]} --resume {shlex.quote(str(path))}` finishes it"]
    if run.kind == "fit" and run.has_checkpoint():
        ways.append("--best-so-far takes the best epoch so far")
    state = "is still going on" if run.status == "running" else "is not finished"
    raise ConfigError(f"the run at {path} {state}, so it has no chosen model; {', or '.join(ways)}")


def chosen_model(run: Run, root: Path | None = None, *, best_so_far: bool = False) -> TrainedModel:
    """The model that a run chose; of a federation, the shared one.

    Args:
        run: the run, as `usable_run` gives it.
        root: where data sets live; only older runs need their data for this.
        best_so_far: the best epoch so far, of a run that is not finished.

    Raises:
        ConfigError: if only the program that made the run can build its model, or no epoch is done.
    """
    from holdfast.training.trained import TrainedModel, rebuilt

    unfinished = best_so_far and run.status != "finished"
    spec, card = run.spec, run.card
    if spec is not None and card is not None and not unfinished:
        return TrainedModel(rebuilt(spec, run.weights(), str(run.path)), card, spec)
    if "model" not in run.config:
        raise ConfigError(
            f"the run at {run.path} was made by a program with a model of its own, which only that program can build; "
            "there, `model.load_state_dict(run.weights())` gives it its weights"
        )
    if run.kind == "federation":
        found, facts, state = _of_older_federation(run, root)
    else:
        found, facts = _of_splits(run, root)
        state = _best_so_far(run) if unfinished else run.weights()
    spec = spec or found
    return TrainedModel(rebuilt(spec, state, str(run.path)), card or facts, spec)


def clients_models(run: Run, root: Path | None = None, method: str | None = None) -> PersonalModels:
    """The personal models of a federation.

    Args:
        run: the run, as `usable_run` gives it.
        root: where data sets live; a method may make a client's model of its data.
        method: whose models, where several methods gave some.

    Raises:
        ConfigError: if there are none, or it is not said which are meant.
    """
    if run.kind != "federation":
        raise ConfigError(f"{run.path} is a run of fit, which has one model for everybody; leave out --client")
    from holdfast.federated.saved_models import personal_models

    return personal_models(run, federation_of(run, root)[1], method)


def federation_of(run: Run, root: Path | None) -> tuple[Clients, PreparedFederation]:
    """The data of a federation and the federation as it began, from what its run directory says."""
    from dataclasses import replace

    from holdfast.cli.commands.federation.blueprint import blueprint_of, model_spec
    from holdfast.cli.commands.federation.options import parse

    options = parse(["--config", str(run.path / "config.yaml")])
    if root is not None:
        options = replace(options, choices=replace(options.choices, data_root=root))
    blueprint = blueprint_of(options)
    clients = blueprint.load()
    # What training started from is in no model that it left, so files with weights to start from are not needed.
    model = model_spec(options, clients.input_shape, clients.outputs).skeleton()
    return clients, blueprint.prepare(clients, model=model)


def _best_so_far(run: Run) -> Mapping[str, Any]:
    weights: dict[str, Any] = run.load_checkpoint()["best"]["weights"]
    if not weights:
        raise ConfigError(
            f"the run at {run.path} has no epoch to choose from yet; "
            f"`holdfast fit --resume {shlex.quote(str(run.path))}` continues it"
        )
    return weights


def _of_splits(run: Run, root: Path | None) -> tuple[ModelSpec, ModelCard]:
    """What a run of fit leaves out that was made before runs described their model, or is not finished."""
    from holdfast.cli.common.options import parse
    from holdfast.data import data_root
    from holdfast.models import ModelSpec
    from holdfast.training.model_card import ModelCard, facts_of_inputs

    options = parse(["--config", str(run.path / "config.yaml")])
    choices = options.choices
    train = options.data.load(data_root(root or choices.data_root)).train
    made = {"data": choices.data, "method": choices.method}
    card = ModelCard(facts_of_inputs(train.inputs), train.class_names, made=made)
    return ModelSpec(choices.model, train.input_shape, train.n_classes, choices.model_args), card


def _of_older_federation(run: Run, root: Path | None) -> tuple[ModelSpec, ModelCard, Mapping[str, Any]]:
    """The same of a federation, and the shared model's weights."""
    from holdfast.federated.run_files import card_of
    from holdfast.federated.saved_models import shared_weights
    from holdfast.models import ModelSpec

    (clients, prepared), config = federation_of(run, root), run.config
    card = card_of(clients, {"data": config["data"], "round": config["rounds"]})
    weights = run.weights() if run.has_weights() else shared_weights(run, prepared)
    args = config.get("model_args") or {}
    return ModelSpec(config["model"], clients.input_shape, clients.outputs, args), card, weights
