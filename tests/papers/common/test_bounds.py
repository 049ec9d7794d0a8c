from holdfast.papers.common.bounds import at_least, at_most, every_seed_reaches, near

STEADY, SHAKY = [80.0, 81.0, 79.0], [60.0, 100.0, 80.0]


def test_a_bound_holds_or_fails_beyond_the_noise_and_is_undecided_within_it():
    assert at_least(STEADY, 75, "it has").holds is True
    assert at_least(STEADY, 85, "it has").holds is False
    assert at_least(SHAKY, 75, "it has").holds is None
    assert at_most(STEADY, 85, "it has").holds is True
    assert at_most(STEADY, 75, "it has").holds is False
    assert at_most(SHAKY, 85, "it has").holds is None


def test_a_mean_is_near_its_target_if_its_interval_lies_within_the_tolerance():
    assert near(STEADY, 82, 5, "it has").holds is True
    assert near(STEADY, 90, 5, "it has").holds is False
    assert near(STEADY, 70, 5, "it has").holds is False
    assert near(SHAKY, 82, 5, "it has").holds is None


def test_one_value_is_decided_by_itself_and_the_evidence_says_so():
    verdict = at_least([74.0], 75, "it has")
    assert (verdict.holds, verdict.evidence) == (False, "it has 74.0 (one seed, at least 75)")


def test_seeds_that_fall_into_two_camps_are_judged_one_by_one():
    assert every_seed_reaches([1.0, 0.95], 0.9, "precision").holds is True
    verdict = every_seed_reaches([1.0, 0.6, 1.0], 0.9, "precision")
    assert (verdict.holds, verdict.evidence) == (False, "precision 1.00, 0.60, 1.00 by seed (each at least 0.9)")
