import numpy as np
import pytest

from holdfast.data.readers.instructions import Instructions
from holdfast.errors import ConfigError, DataError
from holdfast.finetuning import FineTuningSettings, fine_tune
from holdfast.finetuning.evaluation import ProgramOutcome, generation
from holdfast.finetuning.evaluation.generation import generate, math_accuracy
from tests.finetuning.small import language, tokens_of

ROWS = [{"prompt": f"{'very ' * (i % 3)}much {i}", "response": f"It makes {i * 3}. #### {i * 3}"} for i in range(8)]
DATA = Instructions.of(ROWS)


@pytest.fixture(scope="module")
def learned():
    found = language(DATA, width=32, vocabulary=400)
    tokens = tokens_of(DATA, found)
    fine_tune(found.model, tokens, FineTuningSettings(epochs=150, batch_size=8, learning_rate=1e-2))
    return found


def test_a_model_says_what_it_learned_by_heart(learned) -> None:
    said = generate(learned, DATA.prompts, template="plain", max_new_tokens=40, batch_size=3)
    assert said == list(DATA.responses)


def test_padding_changes_no_answer(learned) -> None:
    alone = [generate(learned, [turns], template="plain", max_new_tokens=40)[0] for turns in DATA.prompts]
    assert alone == generate(learned, DATA.prompts, template="plain", max_new_tokens=40, batch_size=8)


def test_answers_are_judged(learned) -> None:
    golds = [str(i * 3) for i in range(8)]
    golds[2] = "7"
    right = math_accuracy(learned, DATA.prompts, golds, template="plain", max_new_tokens=40)
    assert right.tolist() == [True, True, False, True, True, True, True, True]
    with pytest.raises(DataError, match="8 problems and 1 answers"):
        math_accuracy(learned, DATA.prompts, ["3"])


def test_programs_first_and_words_where_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def said(language, prompts, **options):
        asked.append([turns[-1][1] for turns in prompts])
        programs = {"a": "print(1 + 1)", "b": "print(1 / 0)", "c": "no program"}
        if prompts[0][-1][1].endswith("program."):
            return [programs[turns[-1][1][0]] for turns in prompts]
        return ["The answer is 5." for _ in prompts]

    outcomes = {
        "print(1 + 1)": ProgramOutcome("2", True, ""),
        "print(1 / 0)": ProgramOutcome(None, False, "ZeroDivisionError"),
    }
    monkeypatch.setattr(generation, "generate", said)
    monkeypatch.setattr(generation, "find_sandbox", lambda: None)
    monkeypatch.setattr(generation, "run_program", outcomes.__getitem__)
    prompts = [(("user", letter),) for letter in "abc"]
    right = math_accuracy(None, prompts, ["2", "5", "6"], programs=True)  # type: ignore[arg-type]
    assert np.array_equal(right, [True, True, False])
    assert asked == [[f"{letter} Let's write a program." for letter in "abc"], ["b", "c"]]


def test_a_missing_sandbox_is_warned_of_before_anything_is_generated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_here():
        raise ConfigError("no sandbox here")

    def said(language, prompts, **options):
        assert "no sandbox here" in caplog.text
        return ["The answer is 5." for _ in prompts]

    monkeypatch.setattr(generation, "find_sandbox", none_here)
    monkeypatch.setattr(generation, "generate", said)
    assert math_accuracy(None, [(("user", "a"),)], ["5"], programs=True).all()  # type: ignore[arg-type]
