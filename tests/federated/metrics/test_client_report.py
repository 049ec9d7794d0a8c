import math
from dataclasses import replace

import pytest
import torch

from holdfast.federated.metrics.client_report import ClientReport, benign_of
from holdfast.federated.metrics.scoring import ClientScores


def report(correct, count, malicious=(), loss=None) -> ClientReport:
    n = len(correct)
    losses = torch.tensor(loss or [0.5] * n, dtype=torch.float64)
    scores = ClientScores(torch.arange(n), losses, torch.tensor(correct), torch.tensor(count))
    return ClientReport(scores, benign_of(torch.tensor(malicious, dtype=torch.int64), n))


def test_the_spread_is_unweighted_over_benign_clients_without_bessels_correction():
    found = report([9, 1, 5, 0], [10, 2, 10, 10], malicious=[3])
    accuracies = [0.9, 0.5, 0.5]
    mean = sum(accuracies) / 3
    assert found.mean == pytest.approx(mean)
    assert found.std == pytest.approx(math.sqrt(sum((a - mean) ** 2 for a in accuracies) / 3))
    assert found.variance == pytest.approx(found.std**2)
    assert found.worst == pytest.approx(0.5)


def test_pooled_and_client_means_differ_on_unbalanced_clients_and_both_are_stored():
    found = report([90, 1], [100, 10]).summary()
    assert found["mean"] == pytest.approx(0.5)
    assert found["pooled"] == pytest.approx(91 / 110)


def test_what_malicious_clients_reach_changes_no_number():
    assert (
        report([9, 5, 0], [10, 10, 10], [2], [0.1, 0.2, 9.0]).summary()
        == report([9, 5, 10], [10, 10, 10], [2], [0.1, 0.2, 0.0]).summary()
    )


def test_the_worst_tenth_is_a_mean_and_exists_for_few_clients():
    assert report([3, 9], [10, 10]).worst_tenth == pytest.approx(0.3)
    many = report(list(range(20)), [20] * 20)
    assert many.worst_tenth == pytest.approx((0 + 1) / 2 / 20)


def test_clients_without_test_examples_do_not_count():
    assert report([5, 0], [10, 0]).mean == pytest.approx(0.5)


def test_where_no_client_counts_no_number_is_one():
    """As where all nodes of a federation are too late to say how they fare: the run still ends."""
    assert all(math.isnan(number) for number in report([0, 0], [0, 0]).summary().values())


def test_the_table_names_every_client_and_whether_it_is_benign():
    table = report([9, 5], [10, 10], malicious=[1]).table()
    assert table["client"] == [0, 1]
    assert table["benign"] == [True, False]
    assert table["accuracy"] == pytest.approx([0.9, 0.5])


def test_the_earlier_document_s_score_takes_the_spread_off_the_mean_and_adds_it_to_an_error():
    found = report([9, 5], [10, 10])
    assert found.mean_minus_std == found.summary()["mean_minus_std"] == pytest.approx(0.7 - 0.2)
    assert replace(found, higher_is_better=False).mean_minus_std == pytest.approx(0.7 + 0.2)
