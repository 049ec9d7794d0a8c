"""`holdfast export`: the model of a run as a file that other programs load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from holdfast.cli.common.node_models import NodeModels, node_state
from holdfast.cli.common.trained import ALL, check_personal, chosen_model, clients_models, file_name, usable_run
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.training.trained import TrainedModel


@dataclass(frozen=True)
class Export:
    """Write the model of a run as a file that other programs load.

    safetensors is a folder with weights.safetensors, a state dict under the model's own names, and model.json, what the
    model is made from. torch-export is a program for torch.export.load, onnx one for onnxruntime and others: neither
    needs holdfast or the model's code, and both take any number of examples. After writing, outputs are compared with
    the model's on random inputs; what differs by more than 1e-5 is not left behind. The command says which inputs the
    model takes; nothing is applied to them before the model, so give them as the data set does.

    Examples: `holdfast export runs/mine`; `holdfast export runs/mine --to onnx --out model.onnx`; `holdfast export
    runs/wards --client ward-1 --to torch-export`; `holdfast export node-state --client 3`, on a node.

    Attributes:
        run: a run directory of `holdfast fit` or `holdfast federate`, or the state folder of a Flower node, whose
            clients' personal models never leave it otherwise.
        to: the format.
        out: the file, or the folder for safetensors; below export/ in the run directory by default.
        client: the personal model of this client of a federation; the shared model by default.
        method: whose personal models, where the federation has several: ditto, finetuning, ...
        best_so_far: of a run that is not finished, take the best epoch so far.
        overwrite: replace what an export left there before.
        data_root: where data sets live; only personal models and older runs need their data.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    to: Literal["safetensors", "torch-export", "onnx"] = "safetensors"
    out: Path | None = None
    client: str | None = None
    method: str | None = None
    best_so_far: bool = False
    overwrite: bool = False
    data_root: Path | None = None


def export(options: Export, console: Console) -> None:
    """Write the model as `options` say, and say what it takes."""
    from rich.markup import escape

    from holdfast.data.own.schema import Schema
    from holdfast.integrations.export.exporting import check_export_place, export_model
    from holdfast.integrations.export.formats import FORMATS

    check_personal(options.client, options.method)
    if options.client == ALL:
        raise ConfigError("export writes one model; name one client with --client")
    node, form = node_state(options.run), FORMATS[options.to]
    folder = node or usable_run(options.run, best_so_far=options.best_so_far).path
    stem = file_name(options.client, options.method) or ("model" if form.suffix else options.to)
    out = options.out or folder / "export" / f"{stem}{form.suffix}"
    check_export_place(options.to, out, overwrite=options.overwrite)
    trained = _of_run(options, console) if node is None else _of_node(node, options)
    schema = folder / "schema.json"
    attached = {schema.name: schema.read_text(encoding="utf-8")} if schema.exists() else {}
    exported = export_model(trained, options.to, out, overwrite=options.overwrite, attached=attached)
    checked = (
        "not checked, because onnxruntime is not installed"
        if exported.difference is None
        else f"outputs equal the model's to {exported.difference:.1e}"
    )
    console.print(f"Model: [bold]{escape(str(out))}[/], {checked}.", highlight=False, soft_wrap=True)
    console.print(f"Load it with: {escape(form.usage)}", highlight=False, soft_wrap=True)
    takes = f"It takes {exported.card.describe_inputs()}; nothing is applied before the model."
    prepared = Schema.load(schema).preparation if attached else ""
    console.print(escape(f"{takes} {prepared}".rstrip()), highlight=False, soft_wrap=True)
    names = ", ".join(trained.class_names[:10]) + (", ..." if len(trained.class_names) > 10 else "")
    gives = "one number, positive for the second of" if trained.card.task == "margin" else "logits of"
    console.print(escape(f"It gives {gives} {names}."), highlight=False, soft_wrap=True)


def _of_run(options: Export, console: Console) -> TrainedModel:
    run = usable_run(options.run, best_so_far=options.best_so_far)
    trained = chosen_model(run, options.data_root, best_so_far=options.best_so_far)
    if options.client is None:
        return trained
    personal = clients_models(run, options.data_root, options.method)
    client = personal.find(options.client)
    if not personal.took_part(client):
        console.print(f"{options.client} never took part, so its model is the shared one.", highlight=False)
    return trained.of_client(options.client, personal.state_dict(client))


def _of_node(folder: Path, options: Export) -> TrainedModel:
    models = NodeModels(folder, options.method)
    trained = models.trained()
    if options.client is None:
        return trained
    return trained.of_client(options.client, models.state_dict(models.find(options.client)))


def main(arguments: list[str]) -> int:
    """Run the command."""
    from rich.console import Console

    export(tyro.cli(Export, args=arguments, prog="holdfast export"), Console())
    return 0
