"""Real processes over gloo: a sample of tests/soak/test_several_processes.py, and what is refused."""

import os
import signal

import pytest
import torch
import torch.distributed as dist

from holdfast.data import Splits
from holdfast.training import Curator, Training, fit
from holdfast.training.gradient_order import mean_in_order
from holdfast.training.ranks import ALONE, digest
from tests.several import Net, by_engine, by_loop, by_shares, examples, on_ranks
from tests.soak.test_several_processes import assert_alike, assert_close, check_resumed

CASES = [("jtt", True), ("group-dro", False), ("epic+crest", False), ("epic+stratified+dynamic-pruning", False)]


def test_fit_on_two_processes_is_that_on_one():
    alone, ranks = on_ranks(1, by_engine, "fit", CASES), on_ranks(2, by_engine, "fit", CASES)
    assert_alike(ranks)
    for place, (_, norm) in enumerate(CASES):
        if not norm:
            assert_close(ranks[0][place], alone[0][place])


def test_the_readme_loop_on_three_processes_is_that_on_one_and_batch_norm_goes_by_the_shares():
    cases = [("crest", False), ("jtt", True)]
    ranks = on_ranks(3, by_engine, "loop", cases)
    assert_alike(ranks)
    assert_close(ranks[2][0], by_engine("loop", cases[:1])[0])
    assert_close(ranks[2][1], by_shares("loop", "jtt", 3))


def test_a_run_goes_on_with_any_number_of_processes(tmp_path):
    assert check_resumed("fit", ["crest"], (2, 1), tmp_path, 9) == {"crest": "good"}


def test_the_readme_loop_goes_on_to_the_bit_with_three_processes(tmp_path):
    """After its first step DistributedDataParallel lays its buffers out anew, and a resumed loop begins with one."""
    assert check_resumed("loop", ["epic"], (3, 1), tmp_path, 2) == {"epic": "good"}


def _train_differently(what):
    rank, model = dist.get_rank(), Net(norm=False)
    options = {"batch_size": 16, "seed": rank if what == "seed" else 0}
    data = examples().subset(torch.arange(rank, 70, 2)) if what == "data" else examples()
    if what == "weights" and rank:
        torch.nn.init.zeros_(model.head.weight)
    curator = Curator(data, ranks=ALONE if what == "nothing" else None, **options)
    curator.start(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return len(next(iter(curator)).labels)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("seed", "differ in seed: 0 in process 0, 1"),
        ("data", "differ in the training set"),
        ("weights", "model's weights"),
    ],
)
def test_processes_that_were_given_different_things_are_told_all_of_them(what, sentence):
    for answer in on_ranks(2, _train_differently, what):
        assert answer.startswith("ConfigError: the processes differ") and sentence in answer


def test_processes_that_train_by_themselves_say_so():
    assert on_ranks(2, _train_differently, "nothing") == [16, 16]


class LateNet(torch.nn.Module):
    """Has no weights before its first pass, and batch norm without running statistics."""

    def __init__(self):
        super().__init__()
        self.body, self.norm = torch.nn.LazyLinear(8), torch.nn.BatchNorm1d(8, track_running_stats=False)
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.body(x))))


def _train_a_model_without_weights():
    model, data = LateNet(), examples()
    fit(model, Splits("toy", data, data, data), None, Training(epochs=1, batch_size=16, select_by="accuracy"))
    return digest(model.state_dict())


def test_a_model_whose_first_pass_makes_its_weights_is_alike_in_all_processes():
    first, second = on_ranks(2, _train_a_model_without_weights)
    assert first == second and len(first) == 16


def _mean_by_layouts():
    """The mean of the same numbers, laid out otherwise, and of few of them."""
    values = torch.randn(1001, generator=torch.Generator().manual_seed(dist.get_rank()))
    moved = torch.randperm(1001, generator=torch.Generator().manual_seed(9))
    as_it_is, elsewhere = mean_in_order(values), torch.empty(1001)
    elsewhere[moved] = mean_in_order(values[moved])
    return digest({"": as_it_is}), digest({"": elsewhere}), mean_in_order(torch.tensor([2.0 * dist.get_rank()])).item()


def test_a_mean_in_order_is_the_same_wherever_numbers_lie():
    """Unlike an all-reduce, which goes round a ring."""
    answers = on_ranks(3, _mean_by_layouts)
    assert len({one for one, _, _ in answers} | {other for _, other, _ in answers}) == 1
    assert [few for _, _, few in answers] == [2.0] * 3


def _killed_in_mid_training():
    if dist.get_rank() == 1:
        by_loop("crest", False, epochs=1)
        os.kill(os.getpid(), signal.SIGKILL)
    return by_loop("crest", False)


def test_a_process_that_is_killed_is_named_by_the_others():
    survivor, gone = on_ranks(2, _killed_in_mid_training)
    assert gone == "gone"
    assert survivor.startswith("ProcessError: process 0 of 2 can't go on: another process of this training has ended")


def _fails(rank):
    def update(context):
        raise ValueError("no such luck")

    curator = Curator(examples(), batch_size=16)
    curator.chain.update = update
    curator.start(Net(norm=False))


def test_what_a_policy_raises_is_raised_in_every_process():
    first, second = on_ranks(2, _fails, 0)
    assert first.startswith("ValueError: no such luck") and second.startswith("HoldfastError: ValueError: no such luck")
