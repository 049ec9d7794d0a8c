"""The same workloads in holdfast, with the executor that it finds fastest itself."""

from __future__ import annotations

import torch
from workload import CLASSES, LAMBDA, RATE, Record, Workload, current_job

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.federated import Ditto, Rounds, federate
from holdfast.training.events import Event


def make_clients(workload: Workload) -> Clients:
    """The clients' data; their first example stands for the test set, which is looked at after the last round."""
    kind = torch.int64 if workload.words else workload.dtype
    inputs = torch.empty(workload.clients * workload.examples, *workload.shape, dtype=kind)
    labels = torch.empty(len(inputs), dtype=torch.int64)
    for k in range(workload.clients):
        rows = slice(k * workload.examples, (k + 1) * workload.examples)
        inputs[rows], labels[rows] = workload.client(k)
    offsets = torch.arange(0, len(inputs) + 1, workload.examples)
    first = ClientPart(inputs[:: workload.examples], labels[:: workload.examples], torch.arange(workload.clients + 1))
    return Clients(ClientPart(inputs, labels, offsets), first, first, CLASSES)


def main() -> None:
    torch.set_num_threads(1)
    job, workload = current_job()
    model = workload.new_model()
    record = Record.of(model)

    def listen(event: Event) -> None:
        if event.kind == "step":
            record.round_ended()

    settings = Rounds(
        rounds=job.rounds,
        cohort=workload.trained,
        batch_size=workload.batch,
        local_epochs=1,
        learning_rate=RATE,
        sampling="uniform",
        shuffle=False,
        evaluate_every=0,
        workers=job.processes,
    )
    ditto = Ditto(lambda_=LAMBDA, start="initial")
    personalize = [ditto] if workload.ditto else []
    outcome = federate(make_clients(workload), model, settings, personalize=personalize, listeners=[listen])
    record.note = f"{outcome.choice.name}, {outcome.choice.chunk} to a chunk"
    everybody = torch.arange(workload.clients)
    personal = outcome.runtime.personal(ditto.label, everybody, outcome.weights) if workload.ditto else None
    record.write(job, outcome.weights, personal)


if __name__ == "__main__":
    main()
