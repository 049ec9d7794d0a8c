"""What a trained model can be handed on as: how each format is written, and how what was written is run.

Running it again is the point: a file that other programs will trust is loaded as they will load it, and its outputs
are held against the model's.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

import holdfast
from holdfast.data.inputs import InputBatch
from holdfast.errors import CheckpointError, MissingDependencyError
from holdfast.integrations.export.tracing import as_named, input_names, model_outputs, traced
from holdfast.training.trained import TrainedModel, rebuilt
from holdfast.training.weights import load_weights, save_weights

#: What is known of the model, inside a torch.export file and in ONNX's metadata.
CARD = "card.json"


@dataclass(frozen=True)
class Format:
    """A form to hand a model on in.

    Attributes:
        name: what users type.
        suffix: ending of the file; empty for a folder.
        write: puts the model at a path, with texts that belong to it by name, such as its ``schema.json``.
        run: loads what is at a path, as other programs do, and runs a batch through it.
        usage: how another program loads it, in a clause.
        runs_here: whether what runs it is installed.
    """

    name: str
    suffix: str
    write: Callable[[TrainedModel, Path, Mapping[str, str]], None]
    run: Callable[[TrainedModel, Path, InputBatch], Tensor]
    usage: str
    runs_here: Callable[[], bool] = lambda: True


def card_text(trained: TrainedModel) -> str:
    """What is known of the model, as JSON."""
    about = {"version": holdfast.__version__, **asdict(trained.card), "classes": list(trained.class_names)}
    return json.dumps(about)


# ------------------------------------------------------------------------------------------------- safetensors


def _write_safetensors(trained: TrainedModel, folder: Path, attached: Mapping[str, str]) -> None:
    folder.mkdir()
    save_weights(trained.model.state_dict(), folder / "weights.safetensors", trained.card.to_header())
    for name, text in {"model.json": json.dumps(trained.spec.to_json(), indent=2), **attached}.items():
        (folder / name).write_text(text, encoding="utf-8")


def _run_safetensors(trained: TrainedModel, folder: Path, batch: InputBatch) -> Tensor:
    state = load_weights(folder / "weights.safetensors")
    return model_outputs(rebuilt(trained.spec, state, "what was exported"), batch)


# ------------------------------------------------------------------------------------------------- torch.export


def _write_program(trained: TrainedModel, path: Path, attached: Mapping[str, str]) -> None:
    with _quiet():
        torch.export.save(traced(trained), path, extra_files={CARD: card_text(trained), **attached})


def _run_program(_: TrainedModel, path: Path, batch: InputBatch) -> Tensor:
    with _quiet():
        program = torch.export.load(path).module()
    with torch.no_grad():
        outputs: Tensor = program(**batch) if isinstance(batch, dict) else program(batch)
    return outputs


# ------------------------------------------------------------------------------------------------- ONNX


def _write_onnx(trained: TrainedModel, path: Path, attached: Mapping[str, str]) -> None:
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise MissingDependencyError("ONNX files need onnx and onnxscript; pip install 'holdfast[onnx]'")
    size = sum(value.numel() * value.element_size() for value in trained.model.state_dict().values())
    if size >= 2**31:
        raise CheckpointError(
            f"the model has {size / 2**30:.1f} GB of weights and an ONNX file holds less than 2; use --to torch-export"
        )
    program = traced(trained)
    with _quiet():
        graph = torch.onnx.export(
            program, dynamo=True, input_names=input_names(trained.card), output_names=["logits"], verbose=False
        )
        assert graph is not None
        graph.model.metadata_props.update({CARD: card_text(trained), **attached})
        graph.save(path, external_data=False)


def _run_onnx(_: TrainedModel, path: Path, batch: InputBatch) -> Tensor:
    from onnxruntime import InferenceSession  # noqa: PLC0415 - optional

    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {name: part.numpy() for name, part in as_named(batch).items()})
    return torch.from_numpy(outputs[0])


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what torch's exporters say of themselves: deprecations, and operators of packages that are not here."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


#: Every format by the name that users type.
FORMATS = {
    form.name: form
    for form in (
        Format(
            "safetensors",
            "",
            _write_safetensors,
            _run_safetensors,
            "model.load_state_dict(safetensors.torch.load_file('weights.safetensors'))",
        ),
        Format("torch-export", ".pt2", _write_program, _run_program, "torch.export.load(path).module()"),
        Format(
            "onnx",
            ".onnx",
            _write_onnx,
            _run_onnx,
            "onnxruntime.InferenceSession(path)",
            lambda: find_spec("onnxruntime") is not None,
        ),
    )
}
