"""FedAvg in Apple's pfl: one process, or several by torchrun. Batches are slices in order, made once per client."""

from __future__ import annotations

import functools
import types

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops import get_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional as F
from workload import RATE, Record, current_job, flat

ROUNDS_WITHOUT_EVALUATION = 10**6


class RoundEnds(TrainingProcessCallback):
    """Notes the end of each round."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Called when the server's model has been updated."""
        self.record.round_ended()
        return False, Metrics()


def loss(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(network(x), y)


@torch.no_grad()
def metrics(network: nn.Module, x: Tensor, y: Tensor) -> dict[str, Weighted]:
    return {"loss": Weighted(float(F.cross_entropy(network(x), y, reduction="sum")), len(y))}


def main() -> None:
    torch.set_num_threads(1)
    job, workload = current_job()
    network = workload.new_model()
    record = Record.of(network)
    network.loss = types.MethodType(loss, network)
    network.metrics = types.MethodType(metrics, network)

    @functools.cache
    def user(name: str) -> Dataset:
        return Dataset(raw_data=workload.client(int(name)), user_id=name)

    names = [str(k) for k in range(workload.clients)]
    users = FederatedDataset(user, get_user_sampler("minimize_reuse", names))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=job.rounds,
            evaluation_frequency=ROUNDS_WITHOUT_EVALUATION,
            train_cohort_size=workload.clients,
            val_cohort_size=0,
        ),
        SimulatedBackend(users, users, [WeightByUser()]),
        PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0)),
        NNTrainHyperParams(local_learning_rate=RATE, local_num_epochs=1, local_batch_size=workload.batch),
        NNEvalHyperParams(local_batch_size=workload.examples),
        [RoundEnds(record)],
    )
    if get_ops().distributed.global_rank == 0:
        record.write(job, flat(network))
    if torch.distributed.is_initialized():
        # A process that is gone while another still has threads that talk to it takes that one down at its end.
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
