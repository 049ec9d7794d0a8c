"""Servers of these tests don't sleep between questions."""

import pytest
from flwr.supercore.task_identity import TaskIdentity


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("holdfast.integrations.flower.server.exchange._SHORTEST", 0.001)
    monkeypatch.setattr("holdfast.integrations.flower.server.exchange._LONGEST", 0.002)
    monkeypatch.setattr("holdfast.integrations.flower.server.exchange._LOOK", 0.0)
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
