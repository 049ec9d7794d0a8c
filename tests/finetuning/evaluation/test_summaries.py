import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from holdfast.errors import DataError, MissingDependencyError
from holdfast.finetuning.evaluation import bert_score, bleu, rouge_l, summary_scores

TEXTS = ["no acute bleeding in the brain", "the lungs are clear on both sides"]
OTHERS = ["fracture of left third rib seen", "mild oedema with small pleural effusion"]


def longest_common_subsequence(one: list[str], other: list[str]) -> int:
    if not one or not other:
        return 0
    if one[-1] == other[-1]:
        return longest_common_subsequence(one[:-1], other[:-1]) + 1
    return max(longest_common_subsequence(one[:-1], other), longest_common_subsequence(one, other[:-1]))


def test_rouge_l_of_equal_disjoint_and_overlapping_texts():
    pytest.importorskip("rouge_score")
    assert rouge_l(TEXTS, TEXTS) == pytest.approx(100)
    assert rouge_l(OTHERS, TEXTS) == 0
    # "the cat on mat" is common: 4 of 5 words said, 4 of 6 words asked for.
    assert rouge_l(["the cat on a mat"], ["the cat sat on the mat"]) == pytest.approx(100 * 2 * 4 / (5 + 6))
    assert rouge_l([TEXTS[0], OTHERS[0]], [TEXTS[0], TEXTS[1]]) == pytest.approx(50)


def test_rouge_l_is_the_f_measure_of_common_subsequences():
    pytest.importorskip("rouge_score")
    generator = np.random.default_rng(0)
    pairs = [
        ["".join("abc"[i] * 3 + " " for i in generator.integers(3, size=n)).strip() for n in (6, 8)] for _ in range(20)
    ]
    by_hand = [2 * longest_common_subsequence(one.split(), other.split()) / 14 for one, other in pairs]
    predictions, references = zip(*pairs, strict=True)
    assert rouge_l(predictions, references) == pytest.approx(100 * np.mean(by_hand))


def test_bleu_of_equal_disjoint_and_overlapping_texts():
    pytest.importorskip("sacrebleu")
    assert bleu(TEXTS, TEXTS) == pytest.approx(100)
    assert bleu(OTHERS, TEXTS) < 4  # smoothing keeps it above 0
    # Of 6 words 5, of 5 pairs 4, of 4 triples 3, of 3 quadruples 2; the lengths are equal.
    found = bleu(["a b c d e x"], ["a b c d e f"])
    assert found == pytest.approx(100 * math.prod([5 / 6, 4 / 5, 3 / 4, 2 / 3]) ** 0.25)
    # All words are right, but 5 for 6: brevity costs exp(1 - 6 / 5).
    assert bleu(["a b c d e"], ["a b c d e f"]) == pytest.approx(100 * math.exp(1 - 6 / 5))


def test_all_scores_together(monkeypatch):
    pytest.importorskip("sacrebleu")
    pytest.importorskip("rouge_score")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    scores = summary_scores(TEXTS, TEXTS)
    assert scores == pytest.approx({"bleu": 100, "rouge_l": 100})
    with pytest.raises(DataError, match="2 summaries and 1 references"):
        summary_scores(TEXTS, TEXTS[:1])
    with pytest.raises(DataError, match="at least one"):
        summary_scores([], [])


def test_bert_score_is_the_mean_of_its_f_measure(monkeypatch):
    """With a stand-in: the package's models have to be downloaded."""
    calls = []

    def score(predictions, references, lang):
        calls.append((predictions, references, lang))
        return np.array([0.0, 0.0]), np.array([1.0, 1.0]), np.array([0.9, 0.7])

    monkeypatch.setitem(sys.modules, "bert_score", SimpleNamespace(score=score))
    assert bert_score(TEXTS, OTHERS) == pytest.approx(80)
    assert calls == [(TEXTS, OTHERS, "en")]


@pytest.mark.parametrize(
    ("measure", "module", "extra"),
    [(bleu, "sacrebleu", "llm"), (rouge_l, "rouge_score", "llm"), (bert_score, "bert_score", "bertscore")],
)
def test_a_missing_package_is_named_with_its_extra(measure, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "rouge_score.rouge_scorer", raising=False)
    with pytest.raises(MissingDependencyError, match=rf"{module.replace('_', '-')}; pip install 'holdfast\[{extra}\]'"):
        measure(TEXTS, TEXTS)
