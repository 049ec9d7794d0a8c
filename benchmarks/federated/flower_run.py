"""Flower's simulation engine: as many Ray actors as the job has processes, each with one core."""

from __future__ import annotations

from flower_app import JOB, WORKLOAD, client_app, server_app
from flwr.simulation import run_simulation

if __name__ == "__main__":
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=WORKLOAD.clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": JOB.processes, "include_dashboard": False},
        },
    )
