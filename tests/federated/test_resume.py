"""A federation that died at any moment and was continued leaves what one that was never stopped leaves, to the bit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from holdfast.data.clients.federations import load_federation
from holdfast.federated import (
    ClientPrivacy,
    Ditto,
    FedAdam,
    FedYogi,
    FineTuning,
    Local,
    ModelReplacement,
    Rounds,
    Scaffold,
    Threat,
    federate,
)
from holdfast.federated.aggregation import build_aggregator
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.store import RowStore
from holdfast.federated.run_files import lambdas_of
from holdfast.models import build
from holdfast.training import Run
from holdfast.training import run as run_module

CLIENTS, COHORT = 12, 4
SETTINGS = Rounds(
    rounds=9, cohort=COHORT, batch_size=8, learning_rate=0.1, evaluate_every=2, executor="serial", checkpoint_seconds=0
)
DIED = 9


def go(path: Path, settings: Rounds = SETTINGS):
    clients = load_federation("digits-clients", clients=CLIENTS)
    run = Run.open(path) if (path / "config.yaml").exists() else Run.create(path, {})
    return federate(
        clients,
        build("softmax", (1, 8, 8), 10),
        settings,
        aggregator=build_aggregator("momentum+bucketing+centred-clipping"),  # what it remembers is resumed too
        threat=Threat(ModelReplacement(), 0.25),
        expect_malicious=0,
        personalize=[Ditto(), Ditto(lambda_=0.5, steps=3), Local(), FineTuning(epochs=2)],
        run=run,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    return path, go(path)


def expect_the_same(path, outcome, whole):
    whole_path, expected = whole
    assert outcome.history == expected.history
    assert torch.equal(outcome.weights, expected.weights)
    assert torch.equal(outcome.joined, expected.joined)
    everybody = torch.arange(CLIENTS)
    for label, report in expected.reports.items():
        assert outcome.reports[label].table() == report.table()
        if label != "global":
            rows = [found.runtime.personal(label, everybody, found.weights) for found in (outcome, expected)]
            assert torch.equal(*rows)
    chosen = [lambdas_of(found, "ditto-auto").nan_to_num(-1) for found in (outcome, expected)]
    assert torch.equal(*chosen)
    logged = [[event for event in Run.open(p).metrics() if event["event"] == "epoch"] for p in (path, whole_path)]
    assert logged[0] == logged[1]


@dataclass
class Fuse:
    """Ends the process, without a word to anybody, at the n-th call of a function."""

    left: int

    def burn(self, function, before=True):
        def burning(*args, **options):
            self.left -= 1
            if self.left == 0 and before:
                os._exit(DIED)
            result = function(*args, **options)
            if self.left == 0:
                os._exit(DIED)
            return result

        return burning


def trained_in_round(number: int, clients: int) -> int:
    return number * COHORT + clients


@pytest.mark.parametrize(
    "moment",
    [
        (ClientRuntime, "train", trained_in_round(0, 2), False),
        (ClientRuntime, "train", trained_in_round(4, 3), False),
        (RowStore, "write", 3 * trained_in_round(5, 1) + 2, False),
        (RowStore, "state_dict", 14, False),
        (run_module, "save_state", 3, True),
        (os, "fsync", 4, False),
        (Path, "replace", 4, False),
        (ClientRuntime, "personalize", 5, False),
    ],
    ids=["first round", "mid-round", "between two personal models", "rows flushed, no checkpoint yet",
         "before a checkpoint", "checkpoint not in place", "checkpoint in place", "tuning"],
)  # fmt: skip
def test_a_killed_federation_continues_to_the_bit(tmp_path, whole, moment, monkeypatch):
    owner, name, call, before = moment
    path = tmp_path / "run"
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(owner, name, Fuse(call).burn(getattr(owner, name), before))
        try:
            go(path)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == DIED
    assert Run.open(path).status == "interrupted"
    expect_the_same(path, go(path), whole)


def test_checkpoints_that_are_rare_cost_time_and_nothing_else(tmp_path, whole, monkeypatch):
    path = tmp_path / "run"
    child = os.fork()
    if child == 0:
        saves = iter([0.0, 1e9])
        monkeypatch.setattr(Rounds, "checkpoint_seconds", property(lambda _: next(saves, 1e9)), raising=False)
        monkeypatch.setattr(
            ClientRuntime, "train", Fuse(trained_in_round(6, 1)).burn(ClientRuntime.train, before=False)
        )
        try:
            go(path)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == DIED
    assert Run.open(path).load_checkpoint()["number"] == 1
    expect_the_same(path, go(path), whole)


@pytest.mark.parametrize("clients", [1, 3])
def test_ctrl_c_in_the_middle_of_a_round_spoils_nothing(tmp_path, whole, clients, monkeypatch):
    path = tmp_path / "run"
    trained = ClientRuntime.train
    calls = iter(range(trained_in_round(5, clients)))

    def interrupted(*args):
        result = trained(*args)
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patched:
        patched.setattr(ClientRuntime, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            go(path)
    expect_the_same(path, go(path), whole)


def test_a_continued_federation_keeps_the_executor_it_began_with(tmp_path, whole):
    path = tmp_path / "run"
    child = os.fork()
    if child == 0:
        ClientRuntime.train = Fuse(trained_in_round(4, 2)).burn(ClientRuntime.train)
        try:
            go(path)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == DIED
    outcome = go(path, Rounds(**{**vars(SETTINGS), "executor": "batched"}))
    assert outcome.choice.name == "serial"
    expect_the_same(path, outcome, whole)


@pytest.mark.parametrize("known", [True, False], ids=["this version", "before there was a start"])
def test_a_federation_begun_before_there_was_a_start_goes_on_with_the_initial_weights(tmp_path, monkeypatch, known):
    """With `Ditto()` in either: the checkpoint says how the personal models that there are were started."""
    clients, net = load_federation("digits-clients", clients=CLIENTS), build("softmax", (1, 8, 8), 10)
    start = "shared" if known else "initial"
    expected = federate(clients, net, SETTINGS, personalize=[Ditto(start=start)])
    run, calls, trained = Run.create(tmp_path / "run", {}), iter(range(trained_in_round(2, 1))), ClientRuntime.train

    def interrupted(*args):
        trained(*args)
        if next(calls, None) is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ClientRuntime, "train", interrupted)
        federate(clients, net, SETTINGS, personalize=[Ditto(start=start)], run=run)
    saved = run.load_checkpoint()
    assert saved.pop("starts") == {"ditto-auto": start} and (saved["joined"] == 0).any()
    if not known:
        run.save_checkpoint(saved)
    outcome = federate(clients, net, SETTINGS, personalize=[Ditto()], run=run)
    everybody = torch.arange(CLIENTS)
    rows = [found.runtime.stores["ditto-auto"].read(everybody) for found in (outcome, expected)]
    assert torch.equal(*rows)


PRIVATE = Rounds(**{**vars(SETTINGS), "sampling": "poisson"})
SERVERS = {
    "control variates": {"settings": SETTINGS, "objective": Scaffold(), "server_optimizer": FedAdam()},
    "momenta of both vectors": {
        "settings": SETTINGS, "objective": Scaffold(), "aggregator": build_aggregator("momentum")
    },
    "noise": {"settings": PRIVATE, "privacy": ClientPrivacy(0.3, noise_seed=5), "server_optimizer": FedYogi()},
}  # fmt: skip


def _interrupted_in_round(number: int, run: Run, monkeypatch, **parts):
    """Run until the middle of a round, then again from its checkpoint.

    Of that round or, where the server's own chance decides who takes part and gave it no two clients, of a later one.
    """
    clients, net = load_federation("digits-clients", clients=CLIENTS), build("softmax", (1, 8, 8), 10)
    trained, seen = ClientRuntime.train, []

    def stops(self, assignment, *others):
        trained(self, assignment, *others)
        seen.append(assignment.number)
        if assignment.number >= number and seen.count(assignment.number) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ClientRuntime, "train", stops)
        federate(clients, net, personalize=[Ditto(lambda_=0.5)], run=run, **parts)
    before = run.load_checkpoint()
    return before, federate(clients, net, personalize=[Ditto(lambda_=0.5)], run=run, **parts)


@pytest.mark.parametrize("parts", SERVERS.values(), ids=SERVERS)
def test_all_that_servers_and_clients_remember_is_resumed_to_the_bit(tmp_path, monkeypatch, parts):
    clients, net = load_federation("digits-clients", clients=CLIENTS), build("softmax", (1, 8, 8), 10)
    expected = federate(clients, net, personalize=[Ditto(lambda_=0.5)], **parts)
    before, found = _interrupted_in_round(5, Run.create(tmp_path / "run", {}), monkeypatch, **parts)
    assert before["number"] == 5
    assert torch.equal(found.weights, expected.weights)
    everybody = torch.arange(CLIENTS)
    for label, store in expected.runtime.stores.items():
        assert torch.equal(found.runtime.stores[label].read(everybody), store.read(everybody))
    assert found.reports["ditto-0.5"].table() == expected.reports["ditto-0.5"].table()


def test_a_private_federation_goes_on_with_the_key_that_it_began_with(tmp_path, monkeypatch):
    run = Run.create(tmp_path / "run", {})
    before, _ = _interrupted_in_round(5, run, monkeypatch, settings=PRIVATE, privacy=ClientPrivacy(0.3))
    key = before["server"]["privacy/key"]
    assert int(key) > 2**32  # not a seed that somebody would try
    assert torch.equal(run.load_checkpoint()["server"]["privacy/key"], key)
