import pytest
import torch

from holdfast.multimodal.health import partners


def test_a_rare_kind_meets_no_partners_in_small_batches_and_does_where_draws_are_even():
    values = (torch.arange(1000) < 10).long()
    even = torch.where(values == 1, 1 / 10, 1 / 990).double()
    plain = torch.ones(1000)
    assert partners(values, plain, 16, "term").verdict == "failed"
    assert partners(values, plain, 128, "term").verdict == "doubtful"
    found = partners(values, even, 16, "term")
    assert found.verdict == "ok"
    assert found.value == pytest.approx(7.5)


def test_what_is_never_drawn_is_no_kind():
    values = torch.tensor([0, 0, 1, 2])
    assert partners(values, torch.tensor([1.0, 1.0, 2.0, 0.0]), 9, "term").value == 4
