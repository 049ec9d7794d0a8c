"""Whether what a fine-tuned model writes is right: answers, programs and summaries."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.finetuning.evaluation.answers import exact_match, printed_answer
    from holdfast.finetuning.evaluation.programs import ProgramOutcome, find_program, run_program
    from holdfast.finetuning.evaluation.summaries import bert_score, bleu, rouge_l, summary_scores
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ProgramOutcome",
    "bert_score",
    "bleu",
    "exact_match",
    "find_program",
    "printed_answer",
    "rouge_l",
    "run_program",
    "summary_scores",
]
