import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spurious import GroupBalanced, Pde
from holdfast.spurious.reweighting.health import empty_cells, expanded
from holdfast.training import Training, fit
from tests.training.toy import toy_model, toy_splits


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1))
def test_empty_cells_are_the_pairs_that_a_loop_does_not_find(pairs):
    labels, attributes = (torch.tensor(column) for column in zip(*pairs, strict=True))
    missing = {(c, a) for c, _ in pairs for _, a in pairs} - set(pairs)
    finding = empty_cells(labels, attributes)
    assert finding.value == len(missing)
    assert finding.verdict == ("failed" if missing else "ok")


def test_an_epoch_before_the_expansion_is_subsampling():
    assert expanded(26, 30).verdict == "doubtful"  # the issue's: epoch 27, first expansion after 30
    assert "epoch 27 lies before the first expansion, which follows epoch 30" in expanded(26, 30).sentence
    assert expanded(30, 30).verdict == "ok"


def test_methods_that_balance_look_at_the_cells():
    splits, settings = toy_splits(), Training(epochs=2, batch_size=20)
    for method in (GroupBalanced(), Pde(first_expansion=1)):
        found = {
            finding.check: finding.verdict for finding in fit(toy_model(), splits, method, settings).health.findings
        }
        assert found["empty cells"] == "ok"
        assert ("chosen epoch" in found) == isinstance(method, Pde)
