"""The apps of docs/guides/flower-project.md, as the page defines them, train together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

from holdfast.integrations.flower.personal.memory import load_personal
from tests.docs.pages import ROOT, blocks
from tests.integrations.flower.local_grid import LocalGrid, numbers

CLIENTS, ROUNDS = 5, 3


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = {"__name__": "__main__"}
    torch.manual_seed(0)
    for block in blocks(ROOT / "docs" / "guides" / "flower-project.md"):
        if block.language == "python":
            exec(compile(block.body, "flower-project.md", "exec", dont_inherit=True), found)
    return found


def trained(server, client):
    """The model after the page's rounds; the page's clients all separate by their first input."""
    torch.manual_seed(0)
    context = Context(1, 1, {}, RecordDict(), {})
    server(LocalGrid([client] * CLIENTS), context)
    return numbers(context.state["model"])


def test_the_robust_strategy_and_the_personal_models_train(page, tmp_path):
    weight = trained(page["server_app"], page["client_app"])["weight"]
    torch.manual_seed(0)
    start = page["new_model"]().weight
    assert weight[1, 0] - weight[0, 0] > float(start[1, 0] - start[0, 0]) + 0.3
    for client in range(CLIENTS):
        stored = load_personal(tmp_path / "personal", client)
        assert (stored.rounds, stored.method) == (ROUNDS, "ditto-0.5")
    page["export_personal"](tmp_path / "personal", 3, tmp_path / "mine.safetensors")


def test_the_chosen_lambda_trains_with_its_own_optimizer(page, tmp_path):
    app = page["ClientApp"](mods=[page["chosen"]])
    app.train()(page["train"])
    trained(page["server_app"], app)
    stored = load_personal(tmp_path / "chosen", 0)
    assert (stored.rounds, stored.method, list(stored.optimizers)) == (ROUNDS, "ditto-auto", [""])


def test_hidden_updates_train_as_open_ones_do(page):
    hidden = trained(page["secure_server"], page["hidden_app"])
    strategy = page["RobustStrategy"]("mean", fraction_evaluate=0.0)
    torch.manual_seed(0)
    start = page["ArrayRecord"](page["new_model"]().state_dict())
    plain = strategy.start(LocalGrid([page["client_app"]] * CLIENTS), start, num_rounds=ROUNDS)
    for name, array in numbers(plain.arrays).items():
        np.testing.assert_allclose(hidden[name], array, rtol=0, atol=2e-6)
