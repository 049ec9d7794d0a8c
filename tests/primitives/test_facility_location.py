import tracemalloc
from functools import partial
from itertools import combinations
from math import e

import pytest
import torch

from holdfast.errors import ConfigError, DataError
from holdfast.primitives import facility_location as module
from holdfast.primitives import similarity as similarity_module
from holdfast.primitives.facility_location import facility_location
from holdfast.primitives.similarity import LastLayerGradients

from_similarities = partial(facility_location, metric="precomputed")
naively = partial(facility_location, metric="precomputed", method="naive")
stochastically = partial(facility_location, method="stochastic")


def stream(seed):
    return torch.Generator().manual_seed(seed)


def cloud(n, d=3, seed=0):
    return torch.randn(n, d, generator=stream(seed), dtype=torch.float64)


def from_distances(points):
    """The largest distance minus the distance, a pair at a time."""
    distance = torch.stack([(points - point).square().sum(1).sqrt() for point in points])
    return distance.max() - distance


def from_cosines(points):
    unit = points / points.norm(dim=1, keepdim=True)
    return 1 + unit @ unit.T


def from_exponentials(points):
    distance = torch.stack([(points - point).square().sum(1).sqrt() for point in points])
    return (-distance / points.shape[1]).exp()


SIMILARITIES = {"euclidean": from_distances, "cosine": from_cosines, "exponential": from_exponentials}


def worth(similarity, chosen):
    return float(similarity[:, chosen].amax(1).sum())


def assert_same(found, expected):
    assert torch.equal(found.chosen, expected.chosen)
    assert torch.equal(found.gains, expected.gains)
    assert torch.equal(found.assignment, expected.assignment)
    assert torch.equal(found.weights, expected.weights)


# ---------------------------------------------------------------------------------------------- what is given


def brute_force(similarity, k):
    """Greedy by its definition, in double precision, without any grid."""
    s, chosen = similarity.double(), []
    for _ in range(k):
        worths = [worth(s, [*chosen, one]) if one not in chosen else -1 for one in range(s.shape[1])]
        chosen.append(max(range(len(worths)), key=worths.__getitem__))
    return chosen


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.half(),
        lambda s: s.bfloat16(),
        lambda s: s.double() + 1e6,
        lambda s: s.double() + 1e8,
        lambda s: (s.double() * 1e-36).float(),
        lambda s: s.double() * 1e200,
    ],
)
def test_similarities_of_any_kind_are_chosen_from_as_they_are(change):
    given = change(from_distances(cloud(40)).float())
    expected = brute_force(given, 6)
    for found in (from_similarities(given, 6), naively(given, 6)):
        assert found.chosen.tolist() == expected
        assert float(found.gains.sum()) == pytest.approx(worth(given.double(), expected), rel=1e-6)
        assert float(found.weights.sum()) == 40


def test_points_with_gradients_are_chosen_from():
    points, k = cloud(30), 4
    expected = facility_location(points, k, metric="euclidean").chosen
    assert torch.equal(facility_location(points.requires_grad_(), k, metric="euclidean").chosen, expected)
    (found,) = facility_location(points, [k], parts=[torch.arange(30)], metric="euclidean")
    assert torch.equal(found.chosen, expected)


def test_a_part_is_chosen_from_as_if_it_were_alone_however_small_it_is():
    points = torch.cat([cloud(20), 1e-8 * cloud(20, seed=1)])
    parts = [torch.arange(20), torch.arange(20, 40)]
    together = facility_location(points, [5, 5], parts=parts, metric="euclidean")
    for found, part in zip(together, parts, strict=True):
        (alone,) = facility_location(points, [5], parts=[part], metric="euclidean")
        assert torch.equal(found.chosen, alone.chosen)
        assert torch.equal(found.weights, alone.weights)
        assert len(set(found.chosen.tolist())) == 5 and bool((found.weights > 0).all())


# ---------------------------------------------------------------------------------------------- fast and naive


@pytest.mark.parametrize("seed", range(5))
def test_choices_equal_those_of_the_naive_greedy(seed):
    similarity = torch.rand(70, 40, generator=stream(seed))
    for k in (1, 7, 40):
        assert_same(from_similarities(similarity, k), naively(similarity, k))


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_ties_go_to_the_smallest_index_as_in_the_naive_greedy(levels):
    for seed in range(20):
        similarity = torch.randint(levels, (12, 9), generator=stream(seed)).to(torch.float32)
        assert_same(from_similarities(similarity, 9), naively(similarity, 9))
    assert from_similarities(torch.ones(4, 5), 5).chosen.tolist() == [0, 1, 2, 3, 4]


def test_ties_of_symmetric_points_are_not_decided_by_rounding():
    angles = torch.arange(12, dtype=torch.float64) * torch.pi / 6
    circle = torch.stack([angles.cos(), angles.sin()], 1)
    for metric, similarity in SIMILARITIES.items():
        assert int(facility_location(circle, 1, metric=metric).chosen) == 0
        assert int(naively(similarity(circle), 1).chosen) == 0


def test_whole_weights_are_repeated_points_and_equal_the_naive_greedy():
    similarity = torch.rand(30, 30, generator=stream(0))
    weights = torch.randint(0, 5, (30,), generator=stream(1))
    found = from_similarities(similarity, 8, weights=weights)
    assert_same(found, naively(similarity, 8, weights=weights))
    repeated = from_similarities(similarity.repeat_interleave(weights, 0), 8)
    assert torch.equal(found.chosen, repeated.chosen)
    assert torch.equal(found.gains, repeated.gains)
    assert torch.equal(found.weights, repeated.weights)


def test_other_weights_give_the_naive_choices_where_nothing_ties():
    similarity = torch.rand(60, 60, generator=stream(2), dtype=torch.float64)
    weights = torch.rand(60, generator=stream(3)) * 10
    found = from_similarities(similarity, 20, weights=weights)
    expected = naively(similarity, 20, weights=weights)
    assert torch.equal(found.chosen, expected.chosen)
    assert torch.allclose(found.gains, expected.gains, rtol=1e-9)
    assert float(found.weights.sum()) == pytest.approx(float(weights.double().sum()))


# -------------------------------------------------------------------------------------------------- the objective


def test_greedy_reaches_its_guarantee_and_often_the_optimum():
    ratios = []
    for seed in range(200):
        n, k = 6 + seed % 7, 1 + seed % 4
        similarity = from_distances(cloud(n, 2, seed))
        chosen = from_similarities(similarity, k).chosen
        assert torch.equal(chosen, naively(similarity, k).chosen)
        best = max(worth(similarity, list(chosen)) for chosen in combinations(range(n), k))
        ratios.append(worth(similarity, chosen) / best)
    assert min(ratios) >= 1 - 1 / e
    assert sum(ratios) / len(ratios) > 0.97
    assert sum(ratio > 1 - 1e-6 for ratio in ratios) >= 50


def test_index_zero_has_no_privilege():
    """The public CRAIG and CREST pick candidate 0 second whatever it is worth: its gain is taken for missing."""
    points = torch.cat([torch.zeros(1, 2), 0.01 * cloud(30, 2), 5 + 0.01 * cloud(20, 2, 1), -5 + cloud(10, 2, 2)])
    found = facility_location(points, 3, metric="euclidean").chosen.tolist()
    assert 0 not in found[1:]
    assert {1 + (p > 30) + (p > 50) for p in found} == {1, 2, 3}


def test_gains_never_increase_and_add_up_to_the_objective():
    similarity = from_distances(cloud(80))
    found = from_similarities(similarity, 80)
    assert bool((found.gains.diff() <= 0).all())
    for k in (1, 5, 30):
        assert float(found.gains[:k].sum()) == pytest.approx(worth(similarity, found.chosen[:k]), rel=1e-6)


def test_every_point_belongs_to_its_most_similar_exemplar_the_earliest_on_ties():
    similarity = torch.randint(6, (50, 50), generator=stream(4)).to(torch.float64)
    found = from_similarities(similarity, 6)
    for point, place in enumerate(found.assignment.tolist()):
        row = similarity[point, found.chosen].tolist()
        assert place == row.index(max(row))
    assert found.weights.tolist() == torch.bincount(found.assignment, minlength=6).tolist()


def test_a_copy_of_an_exemplar_adds_nothing_and_stands_for_nothing():
    points = torch.tensor([[0.0, 1.0], [5.0, 1.0], [0.0, 1.0], [5.0, 1.0]])
    for metric in SIMILARITIES:
        found = facility_location(points, 4, metric=metric)
        assert found.chosen.tolist() == [0, 1, 2, 3]
        assert found.gains[2:].tolist() == [0, 0]
        assert found.weights.tolist() == [2, 2, 0, 0]


def test_far_points_are_exemplars_of_themselves_once_the_dense_parts_have_theirs():
    """Planted: 3 tight clusters of 30 and 4 scattered points; with 7 exemplars the scattered ones are alone."""
    for seed in range(10):
        centres = 10 * torch.eye(3, dtype=torch.float64)
        tight = centres.repeat_interleave(30, 0) + 0.01 * cloud(90, 3, seed)
        far = 40 * torch.tensor([[-1.0, 0, 0], [0, -1, 0], [0, 0, -1], [1, 1, 1]]).double() + cloud(4, 3, 100 + seed)
        found = facility_location(torch.cat([tight, far]), 7, metric="euclidean")
        alone = found.chosen[found.weights == 1]
        assert sorted(alone.tolist()) == [90, 91, 92, 93]


def test_a_larger_budget_begins_with_the_choices_of_a_smaller_one():
    similarity = from_distances(cloud(40))
    long = from_similarities(similarity, 15)
    for k in (1, 4, 15):
        assert_same(long.first(k), from_similarities(similarity, k))


def test_choosing_stops_before_a_gain_that_is_too_small():
    similarity = from_distances(cloud(40))
    full = from_similarities(similarity, 40)
    threshold = float(full.gains[6])
    assert len(from_similarities(similarity, 40, least_gain=threshold).chosen) == 7
    assert len(from_similarities(similarity, 40, least_gain=threshold * 1.0001).chosen) == 6
    assert len(from_similarities(similarity, 40, least_gain=1e9).chosen) == 1


# --------------------------------------------------------------------------------------------------------- points


@pytest.mark.parametrize("metric", SIMILARITIES)
@pytest.mark.parametrize("d", [2, 40])
def test_points_are_chosen_as_from_their_similarity_matrix(metric, d):
    points = cloud(150, d)
    found = facility_location(points, 25, metric=metric)
    expected = from_similarities(SIMILARITIES[metric](points), 25)
    assert torch.equal(found.chosen, expected.chosen)
    assert torch.equal(found.assignment, expected.assignment)
    assert torch.allclose(found.gains, expected.gains, rtol=1e-6)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_similarities_computed_again_give_what_held_ones_do(metric, monkeypatch):
    points = cloud(300, 5).repeat(2, 1)
    held = facility_location(points, 40, metric=metric)
    for block in (100, 5000):
        monkeypatch.setattr(similarity_module, "_BLOCK", block)
        monkeypatch.setattr(module, "_HELD", 0)
        again = facility_location(points, 40, metric=metric)
        assert torch.equal(again.chosen, held.chosen)
        assert torch.equal(again.assignment, held.assignment)
        assert torch.allclose(again.gains, held.gains, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_matrix_gives_the_same_however_it_lies_in_memory(dtype):
    similarity = torch.rand(90, 200, generator=stream(5)).to(dtype)
    assert_same(from_similarities(similarity.T, 30), from_similarities(similarity.T.contiguous(), 30))
    square = torch.rand(80, 80, generator=stream(6)).to(dtype)
    for matrix in (square, (square + square.T) / 2):
        assert_same(from_similarities(matrix, 30), naively(matrix, 30))


def test_last_layer_gradients_are_chosen_without_being_written_down():
    residuals, features = cloud(120, 4, 1), cloud(120, 7, 2)
    gradients = torch.einsum("nc,nd->ncd", residuals, torch.cat([features, torch.ones(120, 1)], 1)).flatten(1)
    found = facility_location(LastLayerGradients(residuals, features), 20, metric="euclidean")
    expected = facility_location(gradients, 20, metric="euclidean")
    assert torch.equal(found.chosen, expected.chosen)
    assert torch.allclose(found.gains, expected.gains, rtol=1e-5)


@pytest.mark.parametrize("metric", SIMILARITIES)
@pytest.mark.parametrize("together", [0, 50, 10**6])
@pytest.mark.parametrize("small", [0, 45, 1000])
def test_parts_are_chosen_as_if_each_were_alone(metric, together, small, monkeypatch):
    monkeypatch.setattr(module, "_TOGETHER", together)
    monkeypatch.setattr(module, "_SMALL", small)
    points = cloud(90, 4)
    points[40:60] = points[20:40]
    parts = [torch.arange(0, 40), torch.arange(30, 90), torch.tensor([5, 80, 7]), torch.tensor([60])]
    budgets = [4, 10, 3, 1]
    found = facility_location(points, budgets, parts=parts, metric=metric)
    for part, budget, one in zip(parts, budgets, found, strict=True):
        alone = facility_location(points[part], budget, metric=metric)
        assert torch.equal(one.chosen, part[alone.chosen])
        assert torch.equal(one.weights, alone.weights)


def test_parts_of_gradients_are_chosen_as_those_of_written_ones():
    residuals, features = cloud(120, 4, 1), cloud(120, 7, 2)
    gradients = torch.einsum("nc,nd->ncd", residuals, torch.cat([features, torch.ones(120, 1)], 1)).flatten(1)
    parts = [torch.arange(50), torch.arange(50, 120)]
    found = facility_location(LastLayerGradients(residuals, features), [9, 20], parts=parts)
    expected = facility_location(gradients, [9, 20], parts=parts)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.chosen, other.chosen)
        assert torch.equal(one.weights, other.weights)


def test_a_part_with_too_few_points_is_refused_before_any_work():
    with pytest.raises(ConfigError, match="k is 3 and there are 2 candidates"):
        facility_location(cloud(9), [2, 3], parts=[torch.arange(5), torch.arange(2)])


def test_gradients_are_never_materialised():
    """Written down they would take 6.4 GB."""
    gradients = LastLayerGradients(torch.randn(200, 2000), torch.randn(200, 2000))
    tracemalloc.start()
    facility_location(gradients, 5, metric="euclidean")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def test_nothing_is_compiled_after_the_first_call():
    from holdfast.primitives import greedy

    from_similarities(torch.rand(20, 20), 3)
    from_similarities(torch.rand(20, 9).double(), 3)
    facility_location(cloud(40), [3, 4], parts=[torch.arange(20), torch.arange(20, 40)], metric="euclidean")
    loops = [greedy.greedy, greedy.greedy_in_parts, greedy.lower, greedy.is_symmetric]
    before = [len(loop.signatures) for loop in loops]
    for n in (5, 50, 300):
        from_similarities(torch.rand(n, n), 3, weights=torch.rand(n), least_gain=0.1)
        facility_location(cloud(n), 3, metric="euclidean")
        parts = list(torch.arange(n).chunk(3))
        facility_location(cloud(n), [1] * len(parts), parts=parts, metric="euclidean")
    assert [len(loop.signatures) for loop in loops] == before


# ------------------------------------------------------------------------------------------------- stochastic greedy


def test_stochastic_greedy_comes_within_a_hundredth_of_greedy():
    points = cloud(800, 5)
    similarity = from_distances(points)
    exact = worth(similarity, from_similarities(similarity, 80).chosen)
    found = stochastically(points, 80, metric="euclidean", stream=stream(0))
    assert len(set(found.chosen.tolist())) == 80
    assert exact * 0.99 <= worth(similarity, found.chosen) <= exact
    assert float(found.gains.sum()) == pytest.approx(worth(similarity, found.chosen), rel=1e-5)
    random = torch.randperm(800, generator=stream(1))[:80]
    assert exact - worth(similarity, found.chosen) < (exact - worth(similarity, random)) / 4


def test_stochastic_greedy_depends_on_its_stream_alone():
    points = cloud(200, 3)
    runs = [stochastically(points, 20, metric="cosine", stream=stream(s)).chosen for s in (0, 0, 1)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_stochastic_greedy_with_everything_sampled_is_greedy():
    points = cloud(60, 3)
    found = stochastically(points, 60, metric="euclidean", stream=stream(0), epsilon=1e-30)
    assert torch.equal(found.chosen, facility_location(points, 60, metric="euclidean").chosen)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_shuffled_points_have_the_same_exemplars(metric):
    points = cloud(200, 4)
    order = torch.randperm(200, generator=stream(6))
    found = facility_location(points, 12, metric=metric)
    shuffled = facility_location(points[order], 12, metric=metric)
    assert torch.equal(order[shuffled.chosen], found.chosen)
    assert torch.equal(shuffled.assignment, found.assignment[order])


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_only_candidates_are_chosen_and_all_points_count(metric):
    points, candidates = cloud(120), torch.randperm(120, generator=stream(7))[:30]
    found = facility_location(points, 10, metric=metric, candidates=candidates)
    among = SIMILARITIES[metric](points)[:, candidates.sort().values]
    expected = from_similarities(among - among.min(), 10)
    assert torch.equal(found.chosen, candidates.sort().values[expected.chosen])
    assert torch.equal(found.assignment, expected.assignment)
    assert float(found.weights.sum()) == 120


def test_a_far_origin_does_not_blur_distances():
    points = cloud(100, 3)
    found = facility_location(points, 10, metric="euclidean")
    moved = facility_location(points + 1e6, 10, metric="euclidean")
    assert torch.equal(moved.chosen, found.chosen)


def test_a_zero_vector_has_cosine_zero_to_all():
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    found = facility_location(points, 3, metric="cosine")
    assert found.gains.tolist() == [3, 1, 1]


# --------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("k", [0, 4])
def test_a_budget_that_cannot_be_spent_is_refused(k):
    with pytest.raises(ConfigError, match="there are 3 candidates; give 1 to 3"):
        from_similarities(torch.ones(5, 3), k)


@pytest.mark.parametrize(
    ("similarity", "words"),
    [
        (torch.ones(3), "give \\(n, candidates\\)"),
        (torch.ones(0, 3), "give \\(n, candidates\\)"),
        (torch.tensor([[1.0, -0.5]]), "least similarity is -0.5; add a constant"),
        (torch.tensor([[1.0, torch.nan]]), "not finite"),
        (torch.tensor([[1.0, torch.inf]]), "not finite"),
    ],
)
def test_what_is_no_similarity_is_refused(similarity, words):
    with pytest.raises(DataError, match=words):
        from_similarities(similarity, 1)


@pytest.mark.parametrize("weights", [torch.ones(2), torch.tensor([1.0, -1, 1]), torch.tensor([1.0, torch.nan, 1])])
def test_weights_must_fit_the_points(weights):
    with pytest.raises(DataError, match=r"are not \(3,\), finite and at least 0"):
        from_similarities(torch.ones(3, 3), 1, weights=weights)


@pytest.mark.parametrize(
    ("points", "candidates", "words"),
    [
        (torch.ones(3), None, "give \\(n, d\\)"),
        (torch.ones(0, 2), None, "give \\(n, d\\)"),
        (torch.full((3, 2), torch.inf), None, "not finite"),
        (torch.ones(3, 2), torch.tensor([0, 3]), "not all from 0 to 2"),
        (torch.ones(3, 2), torch.tensor([-1, 2]), "not all from 0 to 2"),
        (torch.ones(3, 2), torch.tensor([], dtype=torch.int64), "missing"),
    ],
)
def test_what_are_no_points_or_candidates_is_refused(points, candidates, words):
    with pytest.raises(DataError, match=words):
        facility_location(points, 1, metric="cosine", candidates=candidates)


def test_gradients_have_no_cosines_and_must_fit_their_features():
    with pytest.raises(ConfigError, match="use the metric 'euclidean'"):
        facility_location(LastLayerGradients(torch.ones(3, 2), torch.ones(3, 4)), 1, metric="cosine")
    with pytest.raises(DataError, match="aren't last-layer gradients"):
        facility_location(LastLayerGradients(torch.ones(3, 2), torch.ones(4, 4)), 1, metric="euclidean")


@pytest.mark.parametrize("epsilon", [0, 1, -1])
def test_what_may_be_lost_is_a_fraction(epsilon):
    with pytest.raises(ConfigError, match="give a number between 0 and 1"):
        stochastically(cloud(9), 2, metric="cosine", stream=stream(0), epsilon=epsilon)


def test_an_unknown_metric_is_named():
    with pytest.raises(ConfigError, match="did you mean 'cosine'"):
        facility_location(torch.ones(3, 2), 1, metric="cosinus")


@pytest.mark.parametrize(
    ("k", "options", "words"),
    [
        ([1], {}, "give either"),
        (1, {"parts": [torch.arange(3)]}, "give either"),
        ([1], {"parts": [torch.arange(3)], "weights": torch.ones(3)}, "for all points together"),
        ([1], {"parts": [torch.arange(3)], "candidates": torch.arange(2)}, "for all points together"),
        ([1], {"parts": [torch.arange(3)], "least_gain": 1.0}, "for all points together"),
        ([1], {"parts": [torch.arange(3)], "metric": "precomputed"}, "for all points together"),
        (1, {"metric": "precomputed", "candidates": torch.arange(2)}, "whose columns are all the candidates"),
        (1, {"method": "stochastic"}, "give a stream"),
        (1, {"method": "stochastic", "stream": stream(0), "least_gain": 1.0}, "go up and down"),
        (1, {"method": "lazy"}, "there is no method 'lazy'; known are greedy, naive, stochastic"),
    ],
)
def test_options_that_do_not_go_together_are_refused(k, options, words):
    with pytest.raises(ConfigError, match=words):
        facility_location(torch.ones(3, 3), k, **options)


# ------------------------------------------------------------------------------------------- one function for all ways


@pytest.mark.parametrize("metric", SIMILARITIES)
@pytest.mark.parametrize("held", [0, 10**6])
def test_every_option_means_the_same_to_the_naive_greedy(metric, held, monkeypatch):
    monkeypatch.setattr(module, "_HELD", held)
    points, weights = cloud(60), torch.randint(4, (60,), generator=stream(1))
    options = {"metric": metric, "candidates": torch.arange(5, 50), "weights": weights}
    full = facility_location(points, 30, **options)
    options["least_gain"] = float(full.gains[12])
    found, expected = facility_location(points, 30, **options), facility_location(points, 30, method="naive", **options)
    assert_same(found, expected)
    assert 13 <= len(found.chosen) < 30


def test_stochastic_greedy_in_parts_is_stochastic_greedy_in_each_with_one_stream():
    points, parts = cloud(90), [torch.arange(40), torch.arange(40, 90)]
    together, again = stream(3), stream(3)
    for part, found in zip(parts, stochastically(points, [6, 9], parts=parts, stream=together), strict=True):
        alone = stochastically(points[part], len(found.chosen), stream=again)
        assert torch.equal(found.chosen, part[alone.chosen])
        assert torch.equal(found.weights, alone.weights)


def test_stochastic_greedy_knows_weights_candidates_and_given_similarities():
    points, weights = cloud(60), torch.randint(4, (60,), generator=stream(1))
    options = {"stream": stream(0), "epsilon": 1e-30, "weights": weights}
    expected = facility_location(points, 20, weights=weights)
    assert torch.equal(stochastically(points, 20, **options).chosen, expected.chosen)
    given = from_distances(points) + 1e6  # what they have in common is taken off, and given back
    found = stochastically(given, 20, metric="precomputed", **options)
    assert torch.equal(found.chosen, expected.chosen)
    assert float(found.gains.sum()) == pytest.approx(float(weights.double() @ given[:, found.chosen].amax(1)), rel=1e-9)
    among = torch.arange(10, 40)
    assert torch.equal(
        stochastically(points, 20, candidates=among, **options).chosen,
        facility_location(points, 20, candidates=among, weights=weights).chosen,
    )
