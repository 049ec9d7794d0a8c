import statistics

import pytest
from scipy import stats

from holdfast.papers.engine.evidence import above, beats, every, fewer, half_width, paired, sign_test
from holdfast.papers.engine.experiment import Verdict
from tests.papers.engine.test_results import outcomes
from tests.papers.toy import measured, toy_experiment


@pytest.mark.parametrize("n", range(2, 40))
def test_the_interval_is_that_of_students_t(n):
    values = [0.1 * ((7 * i) % 11) for i in range(n)]
    wanted = stats.t.ppf(0.95, n - 1) * statistics.stdev(values) / n**0.5
    assert half_width(values) == pytest.approx(wanted, rel=0.07 if n > 16 else 1e-3)


def test_a_difference_beyond_its_noise_holds_or_fails():
    assert above([0.10, 0.11, 0.12]).holds is True
    assert above([-0.10, -0.11, -0.12]).holds is False


def test_a_difference_within_its_noise_is_not_judged_and_says_so_with_the_number():
    verdict = above([0.10, -0.08, 0.03], what="ours minus theirs")
    assert verdict.holds is None
    assert verdict.evidence.startswith("within the noise: ours minus theirs +0.017 (± ")


def test_pairs_are_of_the_seeds_that_both_have_and_theirs_may_be_multiplied():
    assert paired({0: 1.0, 2: 5.0, 3: 7.0}, {3: 1.0, 2: 2.0, 4: 9.0}) == [3.0, 6.0]
    assert paired({0: 1.0, 2: 5.0}, {2: 2.0}, times=0.5) == [4.0]


def test_a_margin_has_to_be_exceeded():
    assert above([0.10, 0.11, 0.12], 0.05).holds is True
    assert above([0.10, 0.11, 0.12], 0.2).holds is False
    assert "to exceed 0.2" in above([0.10, 0.11, 0.12], 0.2).evidence


def test_one_seed_is_decided_by_its_sign_and_says_that_it_is_one():
    assert above([0.1]).holds is True
    assert above([-0.1]).holds is False
    assert "one seed" in above([0.1]).evidence


def test_pairs_that_are_all_alike_are_not_above():
    assert above([0.0, 0.0, 0.0]).holds is False
    assert above([0.1, 0.1]).holds is True


def test_entries_are_compared_seed_by_seed(tmp_path):
    results = measured(toy_experiment(tmp_path), outcomes())
    verdict = beats(results, ("toy/b", "score"), ("toy/a", "score"))  # 2 and 5 against 1 and 4: always one more
    assert verdict.holds is True
    assert "+1.000" in verdict.evidence and "2 pairs" in verdict.evidence


def test_only_seeds_that_both_have_are_paired(tmp_path):
    results = measured(toy_experiment(tmp_path), [*outcomes()[:2], outcomes()[3]])
    verdict = beats(results, ("toy/b", "score"), ("toy/a", "score"))
    assert "one seed" in verdict.evidence and "+1.000" in verdict.evidence


@pytest.mark.parametrize(("better", "worse"), [(0, 0), (1, 0), (5, 0), (6, 2), (2, 6), (10, 10)])
def test_the_sign_test_is_the_binomial_one(better, worse):
    wanted = stats.binomtest(max(better, worse), better + worse, alternative="greater").pvalue if better + worse else 1
    assert sign_test(better, worse) == pytest.approx(wanted)


def test_counts_are_compared_trial_by_trial():
    assert fewer([0] * 6, [1] * 6).holds is True
    assert fewer([1] * 6, [0] * 6).holds is False
    undecided = fewer([0, 0, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0])
    assert undecided.holds is None
    assert "1 against 2" in undecided.evidence and "p = 0.500" in undecided.evidence


def test_all_hold_one_fails_or_one_is_open():
    yes, no, open_ = Verdict(True, "a"), Verdict(False, "b"), Verdict(None, "c")
    assert every([yes, yes]) == Verdict(True, "a; a")
    assert every([yes, open_, no]) == Verdict(False, "b; a; c")
    assert every([yes, open_]) == Verdict(None, "c; a")
