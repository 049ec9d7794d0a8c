"""Nodes are killed and started again in every round, the SuperLink in two, the server once; nothing is lost.

At any moment: while orders are pushed, while clients train, while replies are. A server that waits for all (every
second seed of a soak) gets everybody's update in every round.
"""

import io
import random
import threading
import time
from pathlib import Path

import pytest
from flwr.supercore.runtime import RuntimeHttpClient
from rich.console import Console

from holdfast.cli.commands.federation.federate import finish
from holdfast.integrations.flower.nodes.client_state import ClientStates
from holdfast.integrations.flower.rehearsal.deployment import Deployment
from tests.integrations.flower.small_federation import APPS, digest, new_run, on_flower, options_of

pytestmark = pytest.mark.xdist_group("flower")

NODES, CLIENTS, ROUNDS, STEPS = 4, 20, 8, 2


class ServerLostError(Exception):
    """Stands for the end of the server's process."""


class LostAnswer:
    """Loses an answer of the SuperLink that it took a part of a message, once, so that the part is pushed again.

    That is what happens when it is killed between storing the part and saying so.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.due, self.lost = False, 0
        one_at_a_time = threading.Lock()
        push = RuntimeHttpClient.PushObject

        def losing(client, request):
            answer = push(client, request)
            with one_at_a_time:
                due, self.due = self.due, False
            if not due:
                return answer
            self.lost += answer.stored
            return push(client, request)

        monkeypatch.setattr(RuntimeHttpClient, "PushObject", losing)


class Chaos:
    """A listener that kills a quarter of the clients in every round, and the SuperLink in two, at random moments."""

    def __init__(self, deployment: Deployment, answers: LostAnswer, server_dies_after: int, seed: int) -> None:
        self.deployment, self.answers, self.server_dies_after = deployment, answers, server_dies_after
        self.draws = random.Random(seed)
        self.links = self.draws.sample(range(1, ROUNDS), 2)
        self.thread: threading.Thread | None = None
        self.kept: dict[Path, str] = {}
        self.kills = 0

    def __call__(self, event) -> None:
        if event.kind not in ("start", "step"):
            return
        self.join()
        self.nothing_is_lost()
        if event.kind == "step" and event.epoch == self.server_dies_after:
            raise ServerLostError
        self.answers.due = event.kind == "step" and event.epoch == 2
        if event.epoch < ROUNDS:
            node, wait = self.draws.randrange(NODES), self.draws.random()
            self.thread = threading.Thread(target=self.strike, args=(node, wait, event.epoch in self.links))
            self.thread.start()

    def strike(self, node: int, wait: float, link_too: bool) -> None:
        time.sleep(wait)
        self.deployment.kill_node(node)
        self.kills += 1
        if link_too:
            self.deployment.kill_link()
            self.deployment.start_link()
        self.deployment.start_node(node)

    def join(self) -> None:
        if self.thread is not None:
            self.thread.join()

    def nothing_is_lost(self) -> None:
        """What a client had saved is there unchanged, until two later rounds are."""
        now = {path: digest(path) for path in (self.deployment.folder / "nodes").rglob("after-*.safetensors")}
        for path, old in self.kept.items():
            later = [other for other in now if other.parent == path.parent and other.name > path.name]
            assert now.get(path, old) == old
            assert path in now or len(later) == 2
        self.kept = now


@pytest.mark.soak
def test_a_federation_survives_kills_of_clients_superlink_and_server(seed, tmp_path, monkeypatch, caplog):
    options = options_of(
        *("--nodes", str(NODES), "--digits-clients.clients", str(CLIENTS), "--cohort", str(CLIENTS)),
        *("--rounds", str(ROUNDS), "--local-steps", str(STEPS), "--personalize", "ditto", "--ditto.lambda", "0.5"),
        *("--timeout", "90", "--aggregate", "momentum+centred-clipping"),
        *(("--on-few", "wait", "--minimum", str(CLIENTS)) if seed % 2 else ()),
    )
    run = new_run(tmp_path / "run", options)
    answers = LostAnswer(monkeypatch)
    with Deployment(tmp_path / "deployment", [APPS], lasting=True) as deployment:
        for node in range(NODES):
            deployment.start_node(node, {"share": f"{node}/{NODES}"})
        chaos = Chaos(deployment, answers, server_dies_after=5, seed=seed)
        with pytest.raises(ServerLostError):
            on_flower(deployment, options, run, listeners=[chaos])
        chaos.server_dies_after = 0
        outcome = on_flower(deployment, options, run, listeners=[chaos])
        chaos.join()
        chaos.nothing_is_lost()

        assert chaos.kills >= ROUNDS
        assert answers.lost == 1
        assert "they are sent again" in caplog.text
        assert outcome.history[-1]["round"] == ROUNDS
        assert outcome.reports["ditto-0.5"].counted.sum() == CLIENTS
        missed = [fault for fault in outcome.faults if fault["kind"] not in ("returned", "lost")]
        assert int(outcome.joined.sum()) + sum(len(fault["clients"]) for fault in missed) >= ROUNDS * CLIENTS
        assert not seed % 2 or outcome.joined.tolist() == [ROUNDS] * CLIENTS
        returned = [fault for fault in outcome.faults if fault["kind"] == "returned"]
        assert len(returned) >= ROUNDS // 2
        finish(outcome, outcome.runtime.clients, options, run, Console(file=io.StringIO()))
        assert run.results["faults"] == outcome.faults
        assert (run.path / "report.html").read_text().count("has been started again") == len(returned)
        name = (run.path / "federation").read_text()
        for client in range(CLIENTS):
            folder = deployment.node_folder(client * NODES // CLIENTS) / name
            trained = ClientStates(folder).last(client).drawn // STEPS
            assert int(outcome.joined[client]) <= trained <= ROUNDS
