"""A Flower project as its quickstart has it, with a personal model per client, on Flower's own simulation."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from holdfast.federated.personalization import Ditto
from holdfast.integrations.flower.mod import PersonalMod

CLIENTS, ROUNDS, RATE, LAMBDA = 3, 2, 0.1, 0.5


def new_model():
    torch.manual_seed(0)
    return nn.Linear(4, 2)


def batches(message, context):
    return data(int(context.node_config["partition-id"]))


def data(client):
    inputs = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(client))
    return [(each, (each[:, 0] > 0).long()) for each in inputs]


def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def trained(state, client):
    model = new_model()
    model.load_state_dict(state)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for batch in data(client):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
    return model.state_dict()


def apps(folder: Path) -> tuple[ServerApp, ClientApp]:
    personal = PersonalMod(Ditto(LAMBDA), new_model, loss, batches, folder=folder, learning_rate=RATE)
    client, server = ClientApp(mods=[personal]), ServerApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        state = trained(message.content["arrays"].to_torch_state_dict(), int(context.node_config["partition-id"]))
        content = {"arrays": ArrayRecord(state), "metrics": MetricRecord({"num-examples": 24})}
        return Message(RecordDict(content), reply_to=message)

    @server.main()
    def main(grid, context):
        FedAvg(fraction_evaluate=0.0).start(grid, ArrayRecord(new_model().state_dict()), num_rounds=ROUNDS)

    return server, client


if __name__ == "__main__":
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = {"num_cpus": 1, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    run_simulation(
        *apps(Path(sys.argv[1])),
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": ray},
    )
