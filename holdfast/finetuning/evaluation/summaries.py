"""How near summaries come to those that people wrote: BLEU, ROUGE-L and BERTScore, each from 0 to 100.

All three are computed by the packages that papers compute them with (sacrebleu, rouge-score, bert-score), since scores
of other tokenisers don't compare. BLEU is of the whole corpus; the others are means over summaries of an F-measure.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from holdfast.errors import DataError, MissingDependencyError


def summary_scores(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Score summaries by all measures that can be had.

    Args:
        predictions: the summaries of a model.
        references: for each the one that is right.

    Returns:
        ``bleu`` and ``rouge_l``; and ``bert_score`` where bert-score is installed, which needs a language model.

    Raises:
        MissingDependencyError: if sacrebleu or rouge-score is not installed.
        DataError: if there is nothing to score or not one reference per summary.
    """
    scores = {"bleu": bleu(predictions, references), "rouge_l": rouge_l(predictions, references)}
    if importlib.util.find_spec("bert_score"):
        scores["bert_score"] = bert_score(predictions, references)
    return scores


def bleu(predictions: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of the corpus with sacrebleu's defaults: up to four words, its 13a tokeniser, exponential smoothing.

    Raises:
        MissingDependencyError: if sacrebleu is not installed.
        DataError: if there is nothing to score or not one reference per summary.
    """
    try:
        import sacrebleu  # noqa: PLC0415 - optional
    except ImportError as error:
        raise _missing("sacrebleu", "llm") from error
    _check(predictions, references)
    return float(sacrebleu.corpus_bleu(list(predictions), [list(references)]).score)


def rouge_l(predictions: Sequence[str], references: Sequence[str]) -> float:
    """The mean F1 of ROUGE-L: the longest common subsequence of words, without stemming.

    Raises:
        MissingDependencyError: if rouge-score is not installed.
        DataError: if there is nothing to score or not one reference per summary.
    """
    try:
        from rouge_score.rouge_scorer import RougeScorer  # noqa: PLC0415 - optional
    except ImportError as error:
        raise _missing("rouge-score", "llm") from error
    _check(predictions, references)
    scorer, pairs = RougeScorer(["rougeL"]), zip(predictions, references, strict=True)
    found = [scorer.score(reference, prediction)["rougeL"].fmeasure for prediction, reference in pairs]
    return 100 * float(sum(found)) / len(found)


def bert_score(predictions: Sequence[str], references: Sequence[str]) -> float:
    """The mean F1 of BERTScore by its model for English, not rescaled; the package downloads the model at first.

    Raises:
        MissingDependencyError: if bert-score is not installed.
        DataError: if there is nothing to score or not one reference per summary.
    """
    try:
        from bert_score import score  # noqa: PLC0415 - optional
    except ImportError as error:
        raise _missing("bert-score", "bertscore") from error
    _check(predictions, references)
    _, _, f1 = score(list(predictions), list(references), lang="en")
    return 100 * float(f1.mean())


def _missing(package: str, extra: str) -> MissingDependencyError:
    return MissingDependencyError(f"scoring summaries needs {package}; pip install 'holdfast[{extra}]'")


def _check(predictions: Sequence[str], references: Sequence[str]) -> None:
    if len(predictions) != len(references) or not predictions:
        raise DataError(
            f"there are {len(predictions)} summaries and {len(references)} references; give one reference per summary, "
            "and at least one"
        )
