"""What a document's own scale needs, before anybody rents a GPU: files, cells, hours, memory.

The model counts examples that go forward and backward through a network, cell by cell from its settings, and multiplies
them by the operations of one example. Those, the parameters and the bytes kept for the backward pass are counted here
by torch for every network (``benchmarks/paper_costs.py``, kept in ``costs.json``). How many operations a GPU does in a
second is the only number that is assumed and not measured: `TERAFLOPS`. Another GPU's hours follow in proportion.
Some kinds of cells run on the processor as they are declared, on one thread each: their hours follow from the seconds
of a step, measured in the same script.

Counts are upper bounds where a method trains on a part of the data or stops early, and leave out what choosing,
clustering and reading take. What can't be counted from the settings is said to be unknown, not guessed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.papers.engine.experiment import Cell, Experiment, Scale
from holdfast.papers.engine.kinds import key_of

#: Operations a second that training gets out of a GPU, in units of 1e12; assumed, a third of an A100's peak in TF32.
TERAFLOPS = 50.0
#: Bytes per parameter in training: weights, gradients and momentum of four bytes each, and the checkpoint kept.
BYTES_PER_PARAMETER = 16
#: A step of CREST for one of random draws, measured here (crest/table2.1: choosing is four fifths of its time).
_CREST = 7.0
#: Evaluation goes forward only: a third of the operations of training.
_FORWARD = 1 / 3


@dataclass(frozen=True)
class NetworkCost:
    """One example in a network, see ``costs.json``.

    Attributes:
        flop: operations of a forward and a backward pass.
        activation_bytes: kept in between.
        parameters: of the network.
        seconds: of one thread of the processor; None where no cell runs there.
    """

    flop: float
    activation_bytes: float
    parameters: float
    seconds: float | None = None


@dataclass(frozen=True)
class Size:
    """Examples of a data set.

    Attributes:
        train: in the training set.
        others: in validation and test set together.
        clients: that share them.
    """

    train: int
    others: int
    clients: int = 1


#: As the documents or the loaders count them; of LEAF's and StackOverflow's clients only rounded totals, on which
#: fine-tuning and evaluation depend and rounds don't.
SIZES: Mapping[str, Size] = {
    "cmnist5": Size(48_000, 22_000),
    "waterbirds": Size(4_795, 6_993),
    "celeba": Size(162_770, 39_829),
    "civilcomments": Size(269_038, 178_962),
    "restricted-imagenet": Size(257_748, 10_150),
    "cifar10": Size(50_000, 10_000),
    "fashion-mnist": Size(55_126, 17_379, 500),
    "femnist": Size(28_000, 11_000, 205),
    "femnist-skewed": Size(28_000, 11_000, 100),
    "celeba-leaf": Size(7_400, 2_900, 515),
    "stackoverflow": Size(100_000, 39_000, 400),
    "vehicle": Size(1_674, 42_000, 23),
    "painted-mnist": Size(50_400, 19_600, 50),
    "painted-coil20": Size(1_037, 403, 50),
    "celeba-blond": Size(130_000, 50_000, 467),
    "bar": Size(1_941, 654, 50),
    "TIGER-Lab/MathInstruct": Size(262_040, 0),
}

#: Not built on tensors without values: 6 operations per parameter and token, parameters as published.
_TRANSFORMERS: Mapping[str, tuple[float, int]] = {
    "distilbert-base-uncased": (66_000_000, 300),
    "EleutherAI/pythia-70m-deduped": (70_000_000, 512),
    "EleutherAI/pythia-410m-deduped": (405_000_000, 512),
}


@dataclass(frozen=True)
class CellNeed:
    """What one cell needs under one seed.

    Attributes:
        flop: operations on a GPU; None where they can't be counted.
        seconds: on one thread of the processor, for kinds of cells that run there.
        memory: bytes of the GPU, or of the machine for what runs on the processor; every personal model of a
            federation is kept in it.
        data: names of data sets, with how they are found; ``hub:NAME`` for what the Hugging Face hub has.
        weights: public weights.
    """

    flop: float | None
    seconds: float = 0.0
    memory: float = 0.0
    data: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExperimentNeed:
    """What an experiment needs beyond those before it: a cell that several of them show is computed once.

    Attributes:
        name: of the experiment.
        cells: cells times seeds that are its own.
        shared: cells times seeds that earlier experiments of the document have computed.
        hours: of one GPU, for what can be counted.
        processor_hours: of one thread, likewise.
        unknown: cells times seeds whose operations can't be counted.
        memory: the most that one cell needs, in bytes.
        data: data sets, in the order they are met.
        weights: public weights.
    """

    name: str
    cells: int
    shared: int
    hours: float
    processor_hours: float
    unknown: int
    memory: float
    data: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()


@cache
def network_costs() -> Mapping[str, NetworkCost]:
    """The counted networks and those whose cost follows from their parameters."""
    stored = json.loads(Path(__file__).with_name("costs.json").read_text())
    counted = {name: NetworkCost(**cost) for name, cost in stored.items()}
    for name, (parameters, tokens) in _TRANSFORMERS.items():
        # Per layer and token about 34 numbers of the width are kept (Korthikanti et al., 2022); width² x 12 = a layer.
        counted[name] = NetworkCost(6 * parameters * tokens, 4 * 34 * 768 * 12 * tokens, parameters)
    return counted | {"bag-of-words": counted["softmax"]}  # the same layer, fed by the numbers of words


def needs(experiments: Sequence[Experiment], scale: Scale) -> list[ExperimentNeed]:
    """What a document's experiments need at a scale, each without the cells of those before it.

    Args:
        experiments: of a document, in its order; those without the scale are left out.
        scale: usually ``paper``.
    """
    known: set[tuple[str, int]] = set()
    found = []
    for experiment in experiments:
        if scale not in experiment.scales:
            continue
        own, shared, unknown, flop, seconds, memory = 0, 0, 0, 0.0, 0.0, 0.0
        data, weights = dict[str, None](), dict[str, None]()
        for cell in experiment.cells_at(scale):
            need, key = need_of(cell), key_of(cell)
            memory = max(memory, need.memory)
            data |= dict.fromkeys(need.data)
            weights |= dict.fromkeys(need.weights)
            for seed in cell.seeds_of(experiment.default_seeds(scale)):
                if (key, seed) in known:
                    shared += 1
                    continue
                known.add((key, seed))
                own += 1
                unknown += need.flop is None
                flop += need.flop or 0.0
                seconds += need.seconds
        hours = flop / (TERAFLOPS * 1e12) / 3600
        found.append(
            ExperimentNeed(
                experiment.name, own, shared, hours, seconds / 3600, unknown, memory, tuple(data), tuple(weights)
            )
        )
    return found


def need_of(cell: Cell) -> CellNeed:
    """What one cell needs under one seed."""
    count = _COUNTERS.get(cell.kind)
    return CellNeed(None) if count is None else count(cell.settings)


# ------------------------------------------------------------------------------------------------------ kinds of cells


def _training(settings: Mapping[str, Any]) -> CellNeed:
    """Epochs through the whole training set, each with a look at validation and test data."""
    name, network = settings["data"]["name"], settings["model"]["name"]
    given, size = settings["training"], SIZES.get(name)
    weights = settings["model"].get("weights")
    needed = (f"{weights}:{network}",) if weights else ()
    if size is None or network not in network_costs():
        return CellNeed(None, data=(name,), weights=needed)
    cost = network_costs()[network]
    epochs = given["epochs"] + _EXTRA_EPOCHS.get(settings["method"], 0) * given["epochs"]
    passes = epochs * (size.train + size.others * _FORWARD)
    memory = cost.parameters * BYTES_PER_PARAMETER + given["batch_size"] * cost.activation_bytes
    return CellNeed(passes * cost.flop, memory=memory, data=(name,), weights=needed)


#: Methods that train a second model as long as the first.
_EXTRA_EPOCHS = {"lff": 1, "jtt": 1}


def _silhouettes(settings: Mapping[str, Any]) -> CellNeed:
    """Training as far as groups are inferred."""
    infer = settings["options"].get("spare", {}).get("infer_epoch", settings["training"]["epochs"])
    return _training({**settings, "training": {**settings["training"], "epochs": infer}})


def _federations(settings: Mapping[str, Any]) -> CellNeed:
    """Every client of a round makes its steps once for the shared model and once for each model trained alongside."""
    name, network = settings["data"]["name"], settings["model"]
    size, cost = SIZES.get(name), network_costs().get(network)
    if size is None or cost is None:
        return CellNeed(None, data=(f"clients:{name}",))
    passes, most = 0.0, 0
    for changes in settings.get("runs") or [{}]:
        run = {**settings, **changes}
        methods = run.get("personalize", ())
        after = [method for method in methods if method["name"] in _AFTERWARDS]
        alongside = len(methods) - len(after)
        most = max(most, len(methods))
        epochs = sum(method.get("epochs", _AFTERWARDS[method["name"]]) for method in after)
        passes += _rounds(run["rounds"], size) * (1 + alongside) + epochs * size.train
        passes += (1 + len(methods)) * size.others * _FORWARD
    memory = 4 * cost.parameters * size.clients * (1 + most)
    return _on_processor(passes, cost, memory, f"clients:{name}")


#: Methods that tune the final model on every client, with their epochs by default.
_AFTERWARDS = {"finetuning": 50, "ewc": 50, "skl": 50, "per-fedavg": 50, "mapper": 50}


def _rounds(rounds: Mapping[str, Any], size: Size) -> float:
    """Examples that go through the shared model in all rounds."""
    mean = size.train / size.clients
    work = mean * rounds["local_epochs"] if rounds.get("local_epochs") else rounds["local_steps"] * rounds["batch_size"]
    return float(rounds["rounds"] * rounds["cohort"] * work)


def _personalization(settings: Mapping[str, Any]) -> CellNeed:
    """A federation, and each method's epochs on every client, whose examples it pairs with others: twice the work."""
    name, network = settings["data"]["name"], settings["model"]
    size, cost = SIZES.get(name), network_costs().get(network)
    if size is None or cost is None:
        return CellNeed(None, data=(f"clients:{name}",))
    epochs = sum(method.get("options", {}).get("epochs", 5) for method in settings["methods"].values())
    passes = _rounds(settings["rounds"], size) + 2 * epochs * size.train
    memory = 4 * cost.parameters * size.clients * 2
    pixels = ("imagenet:resnet18",) if network == "resnet18-pixels" else ()
    return _on_processor(passes, cost, memory, f"clients:{name}", pixels)


def _crest(settings: Mapping[str, Any]) -> CellNeed:
    """A share of a full training; choosing multiplies the time of a step."""
    size, cost = SIZES[settings["data"]["name"]], network_costs()[settings["model"]]
    chosen = 1.0 if settings["method"] in ("erm", "random") else _CREST
    passes = settings["budget"] * settings["full_epochs"] * size.train * chosen + size.others * _FORWARD
    memory = cost.parameters * BYTES_PER_PARAMETER + settings["batch_size"] * cost.activation_bytes
    return _on_processor(passes, cost, memory, settings["data"]["name"])


def _language(settings: Mapping[str, Any]) -> CellNeed:
    """Fine-tuning on the subset, and for methods that choose one, the proxy's training on everything."""
    costs, everything = network_costs(), SIZES[settings["data"]].train
    target, proxy = costs[settings["target"]], costs[settings["proxy"]]
    data = (f"hub:{settings['data']}",)
    weights: tuple[str, ...] = (f"hub:{settings['target']}",)
    memory = target.parameters * BYTES_PER_PARAMETER + 16 * target.activation_bytes
    if settings["method"] == "pretrained":
        return CellNeed(0.0, memory=memory, data=data, weights=weights)
    flop = settings["epochs"] * (settings["budget"] or everything) * target.flop
    if settings["method"].startswith("s2l"):
        flop += settings["epochs"] * everything * proxy.flop
        weights += (f"hub:{settings['proxy']}",)
    return CellNeed(flop, memory=memory, data=data, weights=weights)


def _poisons(settings: Mapping[str, Any]) -> CellNeed:
    """Two trainings on CIFAR-10, the attacker's and the victim's, and 250 steps on 500 poisons from 8 starts."""
    bed = settings["bed"]["name"]
    epochs = {"cifar10-40": 40, "cifar10-200": 200}.get(bed)
    if epochs is None:
        return CellNeed(None)
    cost, size = network_costs()["resnet18-cifar"], SIZES["cifar10"]
    passes = (40 + epochs) * size.train + 250 * 500 * 8
    memory = cost.parameters * BYTES_PER_PARAMETER + 500 * cost.activation_bytes
    return _on_processor(passes, cost, memory, "cifar10")


def _two_towers(settings: Mapping[str, Any]) -> CellNeed:
    """Images go through the frozen tower once; its cost is a ResNet-50's, with the attention on top left out."""
    world = settings["world"]
    size = SIZES.get(world["name"])
    if size is None:
        return CellNeed(None)
    cost = network_costs()["resnet50"]
    passes = (size.train + size.others) * _FORWARD
    memory = cost.parameters * 4 + 128 * cost.activation_bytes * _FORWARD
    return CellNeed(passes * cost.flop, memory=memory, data=(world["name"],), weights=(str(world["tower"]),))


def _on_processor(
    passes: float, cost: NetworkCost, memory: float, data: str, weights: tuple[str, ...] = ()
) -> CellNeed:
    """The need of a cell whose kind runs on the processor."""
    if cost.seconds is None:
        return CellNeed(None, data=(data,), weights=weights)
    return CellNeed(0.0, passes * cost.seconds, memory, (data,), weights)


def _seconds(settings: Mapping[str, Any]) -> CellNeed:
    """Formulas and tiny networks: no GPU; the stored results at the smaller scale say how few seconds they take."""
    return CellNeed(0.0)


_COUNTERS: Mapping[str, Callable[[Mapping[str, Any]], CellNeed]] = {
    "train": _training,
    "spare-two-networks": _training,
    "spare-variant": _training,
    "spare-silhouettes": _silhouettes,
    "ditto-federations": _federations,
    "personalization": _personalization,
    "crest-train": _crest,
    "s2l-fine-tune": _language,
    "epic-defend": _poisons,
    "clip-tune": _two_towers,
    "clip-detect": _two_towers,
    "ditto-lambda": _seconds,
    "ditto-relatedness": _seconds,
    "personalization-gaussian": _seconds,
    "pde-study": _seconds,
}
