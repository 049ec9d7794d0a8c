"""What commands share that score examples by a run's model: which model, which examples, and what it says of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holdfast.cli.common.node_models import NodeModels, node_state
from holdfast.cli.common.trained import ALL, check_personal, chosen_model, clients_models, federation_of, usable_run
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from holdfast.data import Clients, Examples, Splits
    from holdfast.data.own.schema import Schema
    from holdfast.federated.saved_models import PersonalModels
    from holdfast.training import Run
    from holdfast.training.prediction import ClassScores, PredictionData
    from holdfast.training.trained import TrainedModel

#: Which examples of a data set.
Part = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class ScoringRequest:
    """Which model of which run is to score which examples, and how.

    Attributes:
        run: a run directory, or the state folder of a Flower node.
        data: other data; the run's own by default.
        part: which part of the data.
        client: predict with this client's personal model, `all` with each example's own.
        method: whose personal models, where there are several.
        batch_size: examples per forward pass.
        device: where to compute.
        all_probabilities: keep those of all classes, however many there are.
        best_so_far: of a run that is not finished, take the best epoch so far.
        data_root: where data sets live; as the run was started by default.
    """

    run: Path
    data: str | None = None
    part: Part = "test"
    client: str | None = None
    method: str | None = None
    batch_size: int = 512
    device: str = "cpu"
    all_probabilities: bool = False
    best_so_far: bool = False
    data_root: Path | None = None

    def check(self) -> None:
        """Refuse what can't be asked for.

        Raises:
            ConfigError: if it can't.
        """
        if self.batch_size < 1:
            raise ConfigError(f"--batch-size is {self.batch_size}; give at least 1")
        check_personal(self.client, self.method)

    def sources(self) -> Sources:
        """Where its model and its examples come from."""
        node = node_state(self.run)
        return _of_run(self) if node is None else _of_node(node, self)


@dataclass(frozen=True)
class Sources:
    """Where models and examples come from, read when they are asked for.

    Attributes:
        folder: of the run, or of the federation on a node.
        name: of the data.
        trained: gives the shared model, or the only one.
        personal: gives the clients' models.
        examples: gives what is predicted.
    """

    folder: Path
    name: str
    trained: Callable[[], TrainedModel]
    personal: Callable[[], PersonalModels | NodeModels]
    examples: Callable[[], PredictionData]


def _of_run(options: ScoringRequest) -> Sources:
    run, root = usable_run(options.run, best_so_far=options.best_so_far), options.data_root
    return Sources(
        run.path,
        Path(options.data or str(run.config.get("data"))).name,
        lambda: chosen_model(run, root, best_so_far=options.best_so_far),
        lambda: clients_models(run, root, options.method),
        lambda: examples_for(run, options.data, root, options.part),
    )


def _of_node(folder: Path, options: ScoringRequest) -> Sources:
    models, place = NodeModels(folder, options.method), options.data
    return Sources(
        folder,
        "node" if place is None else Path(place).name,
        models.trained,
        lambda: models,
        lambda: _of_clients(models.clients, options.part, same_clients=True) if place is None else models.read(place),
    )


def scored(
    sources: Sources, options: ScoringRequest, device: torch.device
) -> tuple[ClassScores, PredictionData, Sequence[str]]:
    """What the model that is asked for says, of what, and the names of its classes."""
    from holdfast.training.prediction import class_scores, fitting_examples, of_client
    from holdfast.training.prediction_table import COLUMNS, TOP

    trained = sources.trained()
    client = options.client
    personal = None if client is None else sources.personal()
    if personal is not None and client is not None and client != ALL:
        trained = trained.of_client(client, personal.state_dict(personal.find(client)))
    data = fitting_examples(sources.examples(), trained.card, trained.n_classes)
    top = TOP if trained.n_classes > COLUMNS and not options.all_probabilities else None

    def score(model: nn.Module, examples: Examples) -> ClassScores:
        task, size = trained.card.task, options.batch_size
        return class_scores(model.to(device), examples, task=task, batch_size=size, top=top)

    if personal is None or client is None:
        return score(trained.model, data.examples), data, trained.class_names
    if client == ALL:
        from holdfast.federated.saved_models import scores_by_client

        return scores_by_client(personal, trained, data, score), data, trained.class_names
    data = of_client(data, client)
    return score(trained.model, data.examples), data, trained.class_names


def examples_for(run: Run, data: str | None, root: Path | None = None, part: Part = "test") -> PredictionData:
    """The examples to predict.

    Args:
        run: whose model predicts; its own data is read with the options that it was trained with.
        data: a data set's name, or a file or folder of the kind that the run was trained on; the run's own by default.
        root: where data sets live; as the run was started by default.
        part: which part of the data.

    Raises:
        ConfigError: if there is no such data set.
    """
    from holdfast.cli.common.sections import own_place
    from holdfast.data.catalog import DATASETS
    from holdfast.data.clients.federations import FEDERATIONS

    own = str(run.config.get("data"))
    name = own if data is None or _same(data, own) else data
    if name != own and name not in DATASETS and name not in FEDERATIONS and (place := own_place(name)) is not None:
        return _at_place(run, place)
    if run.kind == "federation":
        return _of_clients(_federated(run, name, own, root), part, same_clients=name == own)
    return _of_splits(_pooled(run, name, own, root), part)


def own_data_of(request: ScoringRequest) -> str | None:
    """The place of a user's own data whose rows the ids of the scored examples count; None where there is none.

    Clients' examples are dealt out, so those of a federation's own data are no rows of a file.
    """
    from holdfast import training
    from holdfast.cli.common.sections import own_place
    from holdfast.data.catalog import DATASETS
    from holdfast.data.clients.federations import FEDERATIONS

    if node_state(request.run) is not None:
        return None
    run = training.Run.open(request.run)
    own = str(run.config.get("data"))
    name = own if request.data is None or _same(request.data, own) else request.data
    if name in DATASETS or name in FEDERATIONS or (run.kind == "federation" and name == own):
        return None
    place = own_place(name)
    return place if place is not None and (place.startswith("hf:") or Path(place).exists()) else None


def _at_place(run: Run, place: str) -> PredictionData:
    """Other data of the user's own, read as the run read its training data; labels may be missing."""
    from holdfast.data.own.schema import Schema

    if not (run.path / "schema.json").exists():
        raise ConfigError(
            f"the run at {run.path} was trained on the data set {run.config.get('data')!r}, so it can't tell what the "
            f"columns of {place} mean; name a data set, or train on data of your own"
        )
    return read_by_schema(Schema.load(run.path / "schema.json"), place, stacked=run.kind == "federation")


def read_by_schema(schema: Schema, place: str, *, stacked: bool) -> PredictionData:
    """Data of the user's own, read as other data was; labels may be missing.

    Args:
        schema: how.
        place: a file or folder.
        stacked: whether inputs are to be one tensor, as federations have them.
    """
    from holdfast.data.clients.own import stackable
    from holdfast.training.prediction import PredictionData

    new = schema.read(place)
    examples = stackable(new.examples) if stacked else new.examples
    names = None if examples.names is None else [str(name) for name in examples.names]
    clients = (
        None if examples.sources is None else [examples.source_names[owner] for owner in examples.sources.tolist()]
    )
    return PredictionData(examples, new.labelled, names, clients, new.notes)


def _pooled(run: Run, name: str, own: str, root: Path | None) -> Splits:
    """The three parts of a pooled data set."""
    from holdfast.cli.common.options import parse
    from holdfast.data.catalog import DATASETS, configured, data_root, find

    options = parse(["--config", str(run.path / "config.yaml")])
    place = data_root(root or options.choices.data_root)
    if name == own:
        return options.data.load(place)
    _refuse_unknown(name, DATASETS)
    return configured(find(name), {}).load(place)


def _federated(run: Run, name: str, own: str, root: Path | None) -> Clients:
    """The data of a federation's clients."""
    from holdfast.data.catalog import DATASETS, data_root
    from holdfast.data.clients.federations import FEDERATIONS, load_federation

    if name == own:
        return federation_of(run, root)[0]
    _refuse_unknown(name, {*FEDERATIONS, *DATASETS})
    config = run.config
    return load_federation(name, data_root(root or config.get("data_root")), int(config.get("seed", 0)))


def _of_splits(splits: Splits, part: Part) -> PredictionData:
    from holdfast.training.prediction import PredictionData

    examples: Examples = getattr(splits, part)
    return PredictionData(examples, names=None if examples.names is None else [str(name) for name in examples.names])


def _of_clients(clients: Clients, part: Part, *, same_clients: bool) -> PredictionData:
    """The examples of all clients, and whose they are: by name; numbers mean a client only in the data they count."""
    from holdfast.data import Examples
    from holdfast.training.prediction import PredictionData

    chosen = clients.parts[part]
    classes = [str(place) for place in range(2 if clients.task == "margin" else clients.classes)]
    examples = Examples.of(
        chosen.inputs,
        chosen.labels,
        groups=chosen.groups,
        class_names=clients.class_names or classes,
        group_names=clients.group_names or None,
    )
    names = list(clients.names) or ([str(client) for client in range(len(clients))] if same_clients else [])
    return PredictionData(examples, clients=[names[owner] for owner in chosen.owners().tolist()] if names else None)


def _same(data: str, own: str) -> bool:
    """Whether two words name the same data set or folder."""
    return data == own or (Path(data).exists() and Path(own).exists() and Path(data).resolve() == Path(own).resolve())


def _refuse_unknown(name: str, names: Collection[str]) -> None:
    from holdfast.cli.common.sections import nearest_place

    if name in names:
        return
    raise ConfigError(f"there is no data set, file or folder {name!r}{nearest_place(name, names)}")
