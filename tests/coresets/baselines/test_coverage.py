"""Coverage-centric selection and its score: margins, strata, and the policy that prunes by them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.coresets import Coverage, coverage_sample, margins
from holdfast.errors import ConfigError
from holdfast.training import Curator, Training, fit
from holdfast.training.model_outputs import ModelOutputs
from tests.coresets.toy import gaussians, net, sgd, toy_splits
from tests.training.policies import DropHighest


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(2, 6))
def test_margins_are_those_of_a_loop(seed, n, classes):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=generator)
    labels = torch.randint(classes, (n,), generator=generator)
    for row, label, found in zip(logits.tolist(), labels.tolist(), margins(logits, labels).tolist(), strict=True):
        assert found == pytest.approx(row[label] - max(row[:label] + row[label + 1 :]))


def shares_of(sizes, total):
    """What each stratum gives, from the smallest on: an even part of what is missing, or all it has."""
    given_by, missing = [], total
    for left, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        given_by.append(min(size, missing // left))
        missing -= given_by[-1]
    return sorted(given_by)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.floats(-50, 50, allow_nan=False, width=32), min_size=1, max_size=120),
    st.integers(1, 12),
    st.floats(0, 0.9),
    st.data(),
)
def test_every_stratum_gives_an_even_part_or_all_it_has(values, strata, cutoff, data):
    scores = torch.tensor(values)
    size = data.draw(st.integers(1, len(values)))
    found = coverage_sample(scores, size, strata=strata, cutoff=cutoff, stream=torch.Generator().manual_seed(1))
    assert len(found) == len(set(found.tolist())) == size
    left_out = min(int(cutoff * len(values)), len(values) - size)
    pool = sorted(values)[left_out:]
    assert float(scores[found].min()) >= pool[0]
    low, width = pool[0], (torch.tensor(pool[-1]).double() - torch.tensor(pool[0]).double()) / strata

    def stratum(value):
        return 0 if width == 0 else min(int((torch.tensor(value).double() - low) / width), strata - 1)

    sizes, drawn = [0] * strata, [0] * strata
    for value in pool:
        sizes[stratum(value)] += 1
    for value in scores[found].tolist():
        drawn[stratum(value)] += 1
    assert sorted(count for count, size in zip(drawn, sizes, strict=True) if size) == shares_of(
        [size for size in sizes if size], size
    )


def test_the_policy_scores_by_margins_over_the_epochs_and_starts_again_on_a_covering_part():
    examples, model = gaussians(), net()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    policy = Coverage(fraction=0.25, score_epochs=3, cutoff=0.2, strata=5)
    curator, optimizer, sums = Curator(examples, policy, batch_size=16), sgd(model), torch.zeros(240)
    for epoch in curator.epochs(1, model, optimizer):
        if epoch == 3:
            assert all(torch.equal(value, start[name]) for name, value in model.state_dict().items())
            break
        for batch in curator:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch.inputs), batch.labels).backward()
            optimizer.step()
        sums += margins(ModelOutputs(model, examples).logits(), examples.labels)
    kept = curator.plan.active.nonzero().flatten()
    assert torch.bincount(examples.labels[kept]).tolist() == [20, 20, 20]
    for label in range(3):
        members = (examples.labels == label).nonzero().flatten()
        hardest = members[sums[members].argsort()[:16]]  # a fifth of 80
        assert not set(kept.tolist()) & set(hardest.tolist())
        scores = sums[kept[examples.labels[kept] == label]]
        rest = sums[members].sort().values[16:]
        assert float(scores.max() - scores.min()) > 0.6 * float(rest[-1] - rest[0]), "from hard to easy"


def test_it_prunes_inside_what_an_earlier_policy_left():
    settings = Training(epochs=2, batch_size=16, learning_rate=0.05, select_by="accuracy")
    policy = DropHighest(count=5, start=0) >> Coverage(fraction=0.5, score_epochs=1)
    result = fit(net(), toy_splits(), policy, settings)
    assert result.history[-1]["examples"] <= 120


@pytest.mark.parametrize(
    ("options", "message"),
    [({"cutoff": 1.0}, "cutoff of ccs is 1.0"), ({"strata": 0}, "strata of ccs is 0"), ({"fraction": 0}, "fraction")],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Coverage(**options)


def test_one_class_has_no_margin():
    with pytest.raises(ConfigError, match="two classes at least"):
        margins(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64))
