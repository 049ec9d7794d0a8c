"""A resumed run equals an uninterrupted one to the bit, for every policy and chain of them."""

import dataclasses
import hashlib
import json
import random
import signal
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

from holdfast.coresets import (
    Coverage,
    Craig,
    Crest,
    DynamicPruning,
    El2n,
    Forgotten,
    Glister,
    GradMatch,
    Grand,
    Stratified,
)
from holdfast.data import Examples, Splits
from holdfast.data.inputs import TensorInputs
from holdfast.errors import CheckpointError, ConfigError
from holdfast.methods import METHODS
from holdfast.poisoning import Epic
from holdfast.poisoning.defenses import (
    ActivationClustering,
    AdversarialPoisoning,
    AsManyAsEpic,
    DeepKnn,
    DpSgd,
    HighestLoss,
    LowestConfidence,
    SpectralSignatures,
)
from holdfast.spurious import (
    ClassBalanced,
    CvarDRO,
    GroupBalanced,
    GroupDRO,
    GroupSubsampled,
    GroupWeighted,
    InferGroups,
    Jtt,
    Pde,
    Spare,
)
from holdfast.training import Event, Run, Training, Uniform, fit, fitting
from holdfast.training.policy import as_chain
from tests.children import PROCESSES
from tests.training.policies import DropHighest, FixedBatches, Growing, LossWeights, TwoStages
from tests.training.toy import toy_model, toy_splits

POLICIES = {
    "uniform": Uniform,
    "class-balanced": ClassBalanced,
    "group-balanced": GroupBalanced,
    "group-subsampled": GroupSubsampled,
    "spare": lambda: Spare(infer_epoch=1, k=1),
    "spare, tuned": lambda: Spare(tune_until=2, k=1),
    "spare's groups >> pde": lambda: InferGroups(Spare(infer_epoch=1, k=1)) >> Pde(first_expansion=1, every=1, added=4),
    "jtt's groups >> group-dro": lambda: InferGroups(Jtt(infer_epoch=1, first_learning_rate=0.02)) >> GroupDRO(),
    "group-dro": GroupDRO,
    "group-weighted": GroupWeighted,
    "cvar": CvarDRO,
    "jtt": lambda: Jtt(infer_epoch=1, lambda_up=3),
    "pde": lambda: Pde(first_expansion=1, every=1, added=4),
    "stratified": Stratified,
    "drop >> stratified": lambda: DropHighest() >> Stratified(),
    "crest": lambda: Crest(batch_size=7, window=1, sightings=1, ahead=3, until_rate=0.4),
    "crest, change": lambda: Crest(batch_size=7, ahead=2, uses=3, tolerance=0.2, until_rate=0),
    "crest, curvature": lambda: Crest(batch_size=7, ahead=2, uses=3, validity="curvature", tolerance=0.2),
    "crest, published": lambda: Crest(algorithm="published", batch_size=7, subset=20, window=1, sightings=1),
    "crest, every batch": lambda: Crest(batch_size=7, subset=20, every_batch=True),
    "crest, first order": lambda: Crest(algorithm="published", batch_size=7, subset=20, order=1, smooth=False),
    "drop >> crest": lambda: DropHighest() >> Crest(batch_size=7, proxy="last_layer"),
    "spare >> crest": lambda: Spare(infer_epoch=1, k=1) >> Crest(batch_size=7, subset=20),
    "craig": lambda: Craig(fraction=0.5),
    "gradmatch": lambda: GradMatch(fraction=0.5),
    "glister": lambda: Glister(fraction=0.5, every=2),
    "el2n": lambda: El2n(fraction=0.5, score_epochs=1),
    "grand": lambda: Grand(fraction=0.5, score_epochs=1),
    "forgetting": lambda: Forgotten(fraction=0.5, score_epochs=2),
    "ccs": lambda: Coverage(fraction=0.5, score_epochs=2, strata=5),
    "dynamic-pruning": lambda: DynamicPruning(anneal=0.25),
    "drop >> stratified >> dynamic-pruning": lambda: DropHighest() >> Stratified() >> DynamicPruning(),
    "epic": lambda: Epic(fraction=0.4, start=1, every=1),
    "epic, remaining": lambda: Epic(fraction=0.4, start=1, every=1, pool="remaining", proxy="last-layer"),
    "epic >> crest": lambda: Epic(fraction=0.4, start=1, every=1) >> Crest(batch_size=7, subset=20),
    "as many as epic": lambda: AsManyAsEpic(fraction=0.4, start=1, every=1, by="loss"),
    "deep-knn": lambda: DeepKnn(filter_epochs=1, expected=0.1),
    "spectral-signatures": lambda: SpectralSignatures(filter_epochs=1, expected=0.03),
    "activation-clustering": lambda: ActivationClustering(filter_epochs=1),
    "highest-loss": lambda: HighestLoss(start=1, every=1, threshold=0.9),
    "lowest-confidence": lambda: LowestConfidence(start=1, every=1, threshold=0.55),
    "dp-sgd": lambda: DpSgd(noise=0.1),
    "adversarial-poisoning": lambda: AdversarialPoisoning(steps=1),
    "drop": DropHighest,
    "batches": FixedBatches,
    "two-stages": TwoStages,
    "growing": Growing,
    "drop >> batches": lambda: DropHighest() >> FixedBatches(),
    "growing >> group-balanced": lambda: Growing(first=20) >> GroupBalanced(),
    "two-stages >> drop >> weights": lambda: TwoStages() >> DropHighest(start=2) >> LossWeights(),
}
#: Methods that are resumed in the tests of their own file, because they need other data or a longer run.
ELSEWHERE = {"lff", "eiil", "pgi", "george", "cnc", "ssa", "dfr-train", "dfr-val"}
SETTINGS = Training(epochs=4, batch_size=7, learning_rate=0.05, seed=3, schedule="cosine", checkpoint_seconds=0)


class StopHere(Exception):  # noqa: N818
    pass


def stop_after(steps: int):
    """A listener that behaves like Ctrl-C once so many steps are done."""

    def listener(event: Event) -> None:
        if event.step >= steps and event.kind in ("step", "epoch"):
            raise StopHere

    return listener


def stop_at_the_end(event: Event) -> None:
    """Stops when all is trained and nothing is reported."""
    if event.kind == "end":
        raise StopHere


def fingerprint(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def as_images(splits: Splits) -> Splits:
    """The same numbers as images of 2 x 3 pixels, for a defence that takes no other."""

    def shaped(part: Examples) -> Examples:
        pixels = part.inputs.gather(torch.arange(len(part))).view(-1, 1, 2, 3)
        return dataclasses.replace(part, inputs=TensorInputs(pixels))

    return Splits(splits.name, shaped(splits.train), shaped(splits.validation), shaped(splits.test))


def train(policy, run=None, listeners=(), settings=None):
    model, splits = toy_model(), toy_splits()
    if isinstance(policy, AdversarialPoisoning):
        model, splits = torch.nn.Sequential(torch.nn.Flatten(), model), as_images(splits)
    return fit(model, splits, policy, settings or SETTINGS, run=run, listeners=listeners)


def test_every_method_is_resumed_here_or_in_its_own_file():
    here = {type(member) for make in POLICIES.values() for member in as_chain(make()).members}
    missing = [name for name in METHODS if METHODS[name] not in here and name not in ELSEWHERE]
    assert not missing, f"{missing}: add a line to POLICIES, so that a killed run of it is continued in a test"


@pytest.mark.parametrize("name", POLICIES)
def test_an_interrupted_run_ends_with_the_same_weights_and_metrics(name, tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    straight = Run.create(tmp_path / "straight", {})
    expected = train(POLICIES[name](), straight)
    total = straight.metrics()[-1]["step"]
    broken = Run.create(tmp_path / "broken", {})
    for steps in (1, total // 3, total // 2, total - 2):
        with pytest.raises(StopHere):
            train(POLICIES[name](), broken, [stop_after(steps)])
    with pytest.raises(StopHere):
        train(POLICIES[name](), broken, [stop_at_the_end])
    result = train(POLICIES[name](), broken)
    assert fingerprint(result.model) == fingerprint(expected.model)
    last = [run.load_checkpoint()["model"] for run in (straight, broken)]
    assert all(torch.equal(last[0][key], last[1][key]) for key in last[0])

    def timeless(run):
        return [{k: v for k, v in record.items() if k != "seconds"} for record in run.metrics()]

    assert timeless(broken) == timeless(straight)


def test_two_different_moments_differ(tmp_path):
    """So that the equality above can fail: one more epoch gives other weights."""
    one = fit(toy_model(), toy_splits(), None, Training(epochs=1, learning_rate=0.05))
    two = fit(toy_model(), toy_splits(), None, Training(epochs=2, learning_rate=0.05, select_by="accuracy"))
    assert one.history[0]["loss"] == two.history[0]["loss"]
    assert one.history[0]["loss"] != two.history[1]["loss"]


def test_resuming_with_other_policies_or_another_model_is_refused(tmp_path):
    run = Run.create(tmp_path / "run", {})
    with pytest.raises(StopHere):
        train(DropHighest(), run, [stop_after(12)])
    with pytest.raises(ConfigError, match="made with the policies drop-highest, this run has uniform"):
        train(Uniform(), run)
    with pytest.raises(ConfigError, match="of another model"):
        fit(torch.nn.Linear(6, 2), toy_splits(), DropHighest(), SETTINGS, run=run)


def test_a_truncated_checkpoint_is_named(tmp_path):
    run = Run.create(tmp_path / "run", {})
    with pytest.raises(StopHere):
        train(Uniform(), run, [stop_after(12)])
    file = tmp_path / "run" / "checkpoints" / "last.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"last\.safetensors can't be read"):
        train(Uniform(), run)


KILLS = 20


def go_on(path: Path, said: Connection) -> None:
    """Begin or continue a run and say every step; the last word is the fingerprint of the weights."""
    fitting._STEP_EVENTS_PER_SECOND = 1e9
    run = Run.open(path) if (path / "config.yaml").exists() else Run.create(path, {})
    settings = dataclasses.replace(SETTINGS, epochs=15)
    policy = DropHighest(count=2) >> FixedBatches()
    result = fit(toy_model(), toy_splits(), policy, settings, run=run, listeners=[lambda event: said.send(event.kind)])
    said.send(fingerprint(result.model))


def start(path: Path) -> tuple[BaseProcess, Connection]:
    heard, said = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=go_on, args=(path, said))
    process.start()
    said.close()
    return process, heard


def last_word(path: Path) -> str:
    process, heard = start(path)
    word = ""
    with suppress(EOFError):
        while True:
            word = heard.recv()
    process.join()
    return word


def test_a_run_killed_at_random_moments_ends_with_the_same_weights(tmp_path):
    """With a checkpoint after every step, many of the kills hit the middle of a write."""
    expected = last_word(tmp_path / "whole")
    assert len(expected) == 64
    dice = random.Random()
    for _ in range(KILLS):
        process, heard = start(tmp_path / "killed")
        for _ in range(dice.randint(1, 6)):
            heard.recv()
        time.sleep(dice.uniform(0, 0.004))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "the run must still be going on when it is killed"
    assert last_word(tmp_path / "killed") == expected
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "killed")]
    assert results[0]["test"] == results[1]["test"]
