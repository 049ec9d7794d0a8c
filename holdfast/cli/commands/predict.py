"""`holdfast predict`: what the model of a run says of examples, as a file, and how every group fares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from holdfast.cli.common.node_models import NodeModels, node_state
from holdfast.cli.common.trained import (
    ALL,
    check_personal,
    chosen_model,
    clients_models,
    federation_of,
    file_name,
    usable_run,
)
from holdfast.errors import ConfigError, nearest

if TYPE_CHECKING:
    import torch
    from rich.console import Console
    from torch import nn

    from holdfast.data import Clients, Examples, Splits
    from holdfast.federated.saved_models import PersonalModels
    from holdfast.training import Run
    from holdfast.training.prediction import ClassScores, PredictionData
    from holdfast.training.trained import TrainedModel

#: Which examples of a data set.
Part = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Predict:
    """Predict with the model of a run, write a row per example, and report on every group where labels are known.

    The table has id, label and group (where known), the predicted class and a probability per class, p_CLASS; of more
    than 100 classes the five most likely ones. It is written as a whole or not at all.

    Examples: `holdfast predict runs/mine`; `holdfast predict runs/mine new.csv`; `holdfast predict runs/mine
    coloured-digits --part validation --out guesses.csv`; `holdfast predict runs/wards --client ward-1`; `holdfast
    predict runs/wards --client all`; `holdfast predict node-state --client all`, on a Flower node.

    Attributes:
        run: a run directory of `holdfast fit` or `holdfast federate`, or the state folder of a Flower node, which
            has the data and the personal models of its own clients.
        data: other data of your own, a file or folder whose columns are called as those of the training data (labels
            may be missing), or a data set's name; the run's own data, with its options, by default.
        out: the file, .parquet or .csv; predictions-DATA-PART.parquet in the run directory by default.
        part: which part of the data; all of a file or folder is predicted.
        client: predict with this client's personal model, on its own examples where the data says whose they are; `all`
            predicts each example with the model of its own client. The shared model by default.
        method: whose personal models, where the federation has several: ditto, finetuning, ...
        batch_size: examples per forward pass.
        device: where to compute; auto for the best there is.
        all_probabilities: a column for every class, however many there are.
        best_so_far: of a run that is not finished, take the best epoch until now.
        overwrite: replace the file if it is there.
        data_root: where data sets live; as the run was started by default.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    data: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None
    out: Path | None = None
    part: Part = "test"
    client: str | None = None
    method: str | None = None
    batch_size: int = 512
    device: str = "cpu"
    all_probabilities: bool = False
    best_so_far: bool = False
    overwrite: bool = False
    data_root: Path | None = None


def predict(options: Predict, console: Console) -> None:
    """Predict as `options` say, write the table and show how every group fares."""
    from holdfast.models.devices import find_device
    from holdfast.training.prediction_table import check_table_place, prediction_table, write_table

    if options.batch_size < 1:
        raise ConfigError(f"--batch-size is {options.batch_size}; give at least 1")
    check_personal(options.client, options.method)
    node, device = node_state(options.run), find_device(options.device)
    sources = _of_run(options) if node is None else _of_node(node, options)
    place = options.out or sources.folder / (file_name("predictions", sources.name, *_asked(options)) + ".parquet")
    check_table_place(place, overwrite=options.overwrite)
    scores, data, class_names = _scored(sources, options, device)
    write_table(prediction_table(scores, data, class_names), place)
    _show(scores, data, f"{sources.folder.name}: {sources.name}, {options.part}", place, console)


@dataclass(frozen=True)
class _Sources:
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


def _of_run(options: Predict) -> _Sources:
    run, root = usable_run(options.run, best_so_far=options.best_so_far), options.data_root
    return _Sources(
        run.path,
        Path(options.data or str(run.config.get("data"))).name,
        lambda: chosen_model(run, root, best_so_far=options.best_so_far),
        lambda: clients_models(run, root, options.method),
        lambda: examples_for(run, options.data, root, options.part),
    )


def _of_node(folder: Path, options: Predict) -> _Sources:
    if options.data is not None:
        raise ConfigError(
            f"a node predicts the examples of its own clients; leave out {options.data!r}, or export the model with "
            f"`holdfast export {options.run} --client NUMBER` and run it on them"
        )
    models = NodeModels(folder, options.method)
    return _Sources(
        folder,
        "node",
        models.trained,
        lambda: models,
        lambda: _of_clients(models.clients, options.part, same_clients=True),
    )


def _scored(
    sources: _Sources, options: Predict, device: torch.device
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


def _at_place(run: Run, place: str) -> PredictionData:
    """Other data of the user's own, read as the run read its training data; labels may be missing."""
    from holdfast.data.clients.own import stackable
    from holdfast.data.own.schema import Schema
    from holdfast.training.prediction import PredictionData

    if not (run.path / "schema.json").exists():
        raise ConfigError(
            f"the run at {run.path} was trained on the data set {run.config.get('data')!r}, so it can't tell what the "
            f"columns of {place} mean; name a data set, or train on data of your own"
        )
    new = Schema.load(run.path / "schema.json").read(place)
    examples = stackable(new.examples) if run.kind == "federation" else new.examples
    names = None if examples.names is None else [str(name) for name in examples.names]
    clients = (
        None if examples.sources is None else [examples.source_names[owner] for owner in examples.sources.tolist()]
    )
    return PredictionData(examples, new.labelled, names, clients)


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
    if name in names:
        return
    raise ConfigError(f"there is no data set, file or folder {name!r}{nearest(name, names)}")


def _asked(options: Predict) -> tuple[str | None, ...]:
    return options.part, options.client, options.method


def _show(scores: ClassScores, data: PredictionData, title: str, place: Path, console: Console) -> None:
    from holdfast.report.html.markup import counted
    from holdfast.training.prediction import report_of

    report = report_of(scores, data)
    if report is not None:
        console.print(report.table(title))
    console.print(f"{counted(len(data.examples), 'example')} in [bold]{place}[/]", highlight=False, soft_wrap=True)


def main(arguments: list[str]) -> int:
    """Run the command."""
    from rich.console import Console

    predict(tyro.cli(Predict, args=arguments, prog="holdfast predict"), Console())
    return 0
