"""A policy that needs the head of a model says so, and one that does without doesn't claim it: tried, for every one."""

import pytest
import torch
from torch import nn

from holdfast.coresets import Crest
from holdfast.errors import ConfigError
from holdfast.methods import METHODS
from holdfast.poisoning import Epic
from holdfast.spurious import Cnc, DfrTrain, DfrVal, Eiil, George, GroupDRO, InferGroups, Lff, Pgi, Spare, Ssa
from holdfast.training import fit
from holdfast.training.policy import as_chain
from tests.training.test_resume import ELSEWHERE, POLICIES, SETTINGS, as_images
from tests.training.toy import toy_splits

MORE = {
    "lff": Lff,
    "eiil": lambda: Eiil(infer_epoch=1),
    "pgi": lambda: Pgi(infer_epoch=1),
    "george": lambda: George(infer_epoch=1, reduce="none"),
    "george, losses": lambda: George(infer_epoch=1, reduce="loss"),
    "cnc": lambda: Cnc(infer_epoch=1),
    "ssa": lambda: Ssa(iterations=2, check_every=1, splits=2),
    "dfr-train": DfrTrain,
    "dfr-val": DfrVal,
    "spare, features": lambda: Spare(infer_epoch=1, k=1, output="features"),
    "spare's groups, features": lambda: InferGroups(Spare(infer_epoch=1, k=1, output="features")) >> GroupDRO(),
    "crest, features": lambda: Crest(batch_size=7, subset=20, proxy="feature"),
    "crest, head": lambda: Crest(algorithm="published", batch_size=7, subset=20, curvature_of="head"),
    "epic, weights": lambda: Epic(fraction=0.4, start=1, every=1, proxy="last-input"),
}
ALL = {**POLICIES, **MORE}


class Headless(nn.Module):
    """Linear, but without a layer that says so."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.matrix = nn.Parameter(0.1 * torch.randn(6, 2, generator=torch.Generator().manual_seed(0)))

    def forward(self, x):
        return self.norm(x.flatten(1)) @ self.matrix


def test_every_method_is_tried():
    assert {*MORE} >= ELSEWHERE
    assert {policy().name for policy in ALL.values()} >= {METHODS[name].name for name in METHODS} - {"erm"}


@pytest.mark.parametrize("name", ALL)
def test_a_policy_says_whether_it_needs_a_head(name):
    policy = ALL[name]()
    needed = as_chain(policy).needs_head
    assert policy.needs_head == needed
    try:
        splits = as_images(toy_splits()) if policy.name == "adversarial-poisoning" else toy_splits()
        fit(Headless(), splits, policy, SETTINGS)
    except ConfigError as error:
        assert needed and "no nn.Linear at all" in str(error)
    else:
        assert not needed
