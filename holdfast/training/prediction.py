"""What a trained model says of examples that it was not trained on: classes and probabilities, example by example.

Before anything runs the data is held against the model's card: shapes, named inputs, and the names of classes, which
data may have in another order. Labels may be unknown: then there is nothing to report.
`holdfast.training.prediction_table` makes a file of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.data.own.words import some
from holdfast.errors import DataError
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.model_card import ModelCard, OutputTask, differences, input_facts
from holdfast.training.model_outputs import call, device_of, evaluating, to_device


@dataclass(frozen=True, eq=False)
class PredictionData:
    """Examples to predict, and what is known of them besides.

    Attributes:
        examples: the examples; labels mean nothing where `labelled` is False.
        labelled: whether labels are known.
        names: what people call each example, such as its file.
        clients: the client of each example, where there are clients.
        notes: what in the data the model was not given, a line each.
    """

    examples: Examples
    labelled: bool = True
    names: Sequence[str] | None = None
    clients: Sequence[str] | None = None
    notes: Sequence[str] = ()

    def subset(self, positions: Tensor) -> PredictionData:
        """Those at `positions`, int64."""

        def pick(values: Sequence[str] | None) -> list[str] | None:
            return None if values is None else [values[place] for place in positions.tolist()]

        return replace(
            self, examples=self.examples.subset(positions), names=pick(self.names), clients=pick(self.clients)
        )


@dataclass(frozen=True, eq=False)
class ClassScores:
    """What a model says of each example.

    Attributes:
        predicted: the class, int64 of shape (n,).
        scores: probabilities (n, k), highest first where `classes` says of which classes; of a margin, the margin
            (n, 1).
        classes: which classes the columns are, int64 of shape (n, k); None where they are all classes in order.
    """

    predicted: Tensor
    scores: Tensor
    classes: Tensor | None = None

    def at(self, positions: Tensor) -> ClassScores:
        """Those at `positions`, int64."""
        classes = None if self.classes is None else self.classes[positions]
        return ClassScores(self.predicted[positions], self.scores[positions], classes)

    @classmethod
    def joined(cls, parts: Sequence[ClassScores]) -> ClassScores:
        """Several, one after another."""
        ranked = [part.classes for part in parts if part.classes is not None]
        return cls(
            torch.cat([part.predicted for part in parts]),
            torch.cat([part.scores for part in parts]),
            torch.cat(ranked) if ranked else None,
        )


def class_scores(
    model: nn.Module,
    examples: Examples,
    *,
    task: OutputTask = "classes",
    batch_size: int = 512,
    top: int | None = None,
    done: Callable[[int], None] = lambda count: None,
) -> ClassScores:
    """Run a model over examples in evaluation mode; the model is left as it was.

    Args:
        model: the model.
        examples: what to predict.
        task: how its outputs are read.
        batch_size: examples per forward pass.
        top: keep so many of the most likely classes; all by default.
        done: told how many examples are done.

    Returns:
        What it says.

    Raises:
        DataError: if an output is not a finite number; ids are named.
    """
    device, parts, count = device_of(model), list[ClassScores](), 0
    with evaluating(model):
        for positions in torch.split(torch.arange(len(examples)), batch_size):
            outputs = call(model, to_device(examples.inputs.gather(positions), device)).to("cpu", torch.float32)
            wrong = positions[~outputs.flatten(1).isfinite().all(1)]
            if len(wrong):
                ids = ", ".join(str(number) for number in examples.ids[wrong[:5]].tolist())
                raise DataError(
                    f"the model's outputs are not finite for {len(wrong)} of {len(positions)} examples, ids {ids}; "
                    "look at their inputs, which may be infinite or NaN"
                )
            parts.append(_read_outputs(outputs, task, top))
            count += len(positions)
            done(count)
    return ClassScores.joined(parts)


def _read_outputs(outputs: Tensor, task: OutputTask, top: int | None) -> ClassScores:
    if task == "margin":
        return ClassScores((outputs[:, 0] > 0).long(), outputs[:, :1])
    probabilities = outputs.softmax(1)
    if top is None or top >= probabilities.shape[1]:
        return ClassScores(outputs.argmax(1), probabilities)
    highest, classes = probabilities.topk(top, dim=1)
    return ClassScores(outputs.argmax(1), highest, classes)


def fitting_examples(data: PredictionData, card: ModelCard, n_classes: int) -> PredictionData:
    """The data with labels as the model numbers its classes, if the model can take it.

    Args:
        data: what to predict.
        card: what the model takes and gives.
        n_classes: how many classes the model has.

    Raises:
        DataError: if there are no examples, their inputs are of another shape, or the model lacks one of their classes.
    """
    if card.task == "regression":
        raise DataError("the model gives quantities and predict writes classes; load its weights, or export it")
    examples = data.examples
    if not len(examples):
        raise DataError("there are no examples to predict; choose another --part, or other data")
    given = input_facts(examples.inputs.gather(torch.arange(1)))
    if other := differences(card.inputs, given):
        raise DataError(f"{other}; give data like that which the model was trained on")
    if not data.labelled:
        return data
    known = card.classes or tuple(str(place) for place in range(n_classes))
    present = torch.bincount(examples.labels, minlength=examples.n_classes).tolist()
    if card.classes:
        unknown = [
            name for name, count in zip(examples.class_names, present, strict=True) if count and name not in known
        ]
    else:
        unknown = [name for name in examples.class_names[n_classes:] if present[examples.class_names.index(name)]]
    if unknown:
        raise DataError(
            f"the data has classes that the model doesn't know: {some(map(repr, unknown))}; it knows "
            f"{some(map(repr, known))}; leave these examples out, or train on them"
        )
    if examples.class_names == known or not card.classes:
        return data  # a model whose classes have no names gives them in the data's own order
    place = {name: number for number, name in enumerate(known)}
    moved = torch.tensor([place.get(name, 0) for name in examples.class_names], dtype=torch.int64)
    return replace(data, examples=replace(examples, labels=moved[examples.labels], class_names=tuple(known)))


def of_client(data: PredictionData, client: str) -> PredictionData:
    """The examples of one client, where the data says whose they are; all of them where it doesn't.

    Raises:
        DataError: if the client has no examples here.
    """
    if data.clients is None:
        return data
    own = [place for place, name in enumerate(data.clients) if name == client]
    if not own:
        raise DataError(f"the client {client!r} has no examples in this part of the data; choose another --part")
    return data.subset(torch.tensor(own))


def report_of(scores: ClassScores, data: PredictionData) -> GroupReport | None:
    """How every group fares, where labels are known."""
    return GroupReport.of(scores.predicted, data.examples) if data.labelled else None
