"""The mod on Flower's Ray simulation, whose clients come and go as actors of other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from holdfast.integrations.flower.personal.memory import load_personal, personal_models
from tests.integrations.flower import ray_project as project


def ditto_by_hand(client):
    """FedAvg and Ditto's steps, with torch alone."""
    shared = project.new_model().state_dict()
    personal = project.new_model()
    for _ in range(project.ROUNDS):
        for batch in project.data(client):
            gradients = torch.autograd.grad(project.loss(personal, batch), list(personal.parameters()))
            with torch.no_grad():
                for (name, value), gradient in zip(personal.named_parameters(), gradients, strict=True):
                    value.sub_(project.RATE * (gradient + project.LAMBDA * (value - shared[name])))
        states = [project.trained(shared, each) for each in range(project.CLIENTS)]
        shared = {name: sum(state[name] for state in states) / project.CLIENTS for name in shared}
    return personal.state_dict()


def test_personal_models_on_the_ray_simulation_are_dittos(tmp_path):
    folder = tmp_path / "personal"
    environment = {**os.environ, "FLWR_HOME": str(tmp_path / "flwr"), "FLWR_TELEMETRY_ENABLED": "0"}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    root = str(Path(__file__).parents[3])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "tests.integrations.flower.ray_project", str(folder)]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (run,) = personal_models(folder)
    for client in range(project.CLIENTS):
        state = load_personal(folder, client, run)
        assert state.rounds == project.ROUNDS
        for name, value in ditto_by_hand(client).items():
            torch.testing.assert_close(state.model[name], value, rtol=0, atol=1e-6)
