import json
import random
import re
import threading
import time
from fractions import Fraction

import numpy as np
import pytest

from holdfast.errors import DataError, MissingDependencyError
from holdfast.finetuning.evaluation import answers, exact_match, printed_answer

# What a model writes, and the right answer as a data set has it.
RIGHT = [
    ("3", "3"),
    ("3.0", "3"),
    ("-5", "-5"),
    ("1,450,000", "1450000"),
    ("1000", "1,000"),
    ("It costs $4.50.", "4.5"),
    ("The answer is 12 apples.", "12"),
    ("50%", "50"),
    ("3/4", "0.75"),
    (r"\boxed{\frac{1}{2}}", "0.5"),
    (r"$-\frac{2}{3}$", "-2/3"),
    ("6/8", "3/4"),
    (r"\boxed{1\frac{1}{2}}", "3/2"),
    ("0.333333", "1/3"),
    ("$1.5 \\times 10^{3}$", "1500"),
    (r"\boxed{2\sqrt{3}}", r"\sqrt{12}"),
    (r"$\frac{\sqrt{2}}{2}$", r"\frac{1}{\sqrt{2}}"),
    (r"\boxed{x^{2} + 2x + 1}", "(x+1)^2"),
    ("$x = 5$", "5"),
    (r"\boxed{1, 2}", "2, 1"),
    (r"$\{1, 2\}$", r"\{2, 1\}"),
    (r"\boxed{(-\infty, 3]}", r"(-\infty,3]"),
    (r"\boxed{\begin{pmatrix} 1 \\ 2 \end{pmatrix}}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"\boxed{x > 3}", "3 < x"),
    ("She sold 48 / 2 = 24 clips in May. Altogether 48 + 24 = 72 clips.\n#### 72", "72"),
    ("#### -1,450", "-1,450"),
    ("It rose by $2 and then by $3, to 33.333%, which is about 33%\n#### 33", "33"),
    ("So the final answer is 1,000.", "1,000"),
    ("**Answer:** 7", "7"),
    ("The answer is 5. Wait, I forgot the dog. The answer is 6.", "6"),
    ("Hence $x = \\boxed{\\frac{3}{4}}$, since 7 is prime.", r"\frac{3}{4}"),
    (r"First $\boxed{1}$, then $\boxed{2}$.", "2"),
    ("He walks 3 miles and then 4 miles, 7 miles in all.", "7"),
    ("The answer is 12.\n\n### Instruction:\nWhat is 5 + 5?\n\n### Response: The answer is 10.", "12"),
    ("The answer is 12.\nQuestion: What is 5 + 5?\nThe answer is 10.", "12"),
    ("The answer is B because 5 > 3.", "B"),
    ("The answer is (B).", "(B)"),
    (r"\boxed{B}", "(B)"),
    ("B) 12 apples", "B"),
]

WRONG = [
    ("", "3"),
    ("   \n", "3"),
    ("I don't know.", "3"),
    ("3", "4"),
    ("-5", "5"),
    ("1,000", "1"),
    ("1,000", "1,001"),
    ("109200001", "109,200,000"),
    ("12.3", "12"),
    ("0.3", "1/3"),
    ("3.1", r"\pi"),
    ("4/3", "3/4"),
    (r"\boxed{2\sqrt{3}}", r"2\sqrt{2}"),
    (r"\boxed{5x}", "5"),
    (r"\boxed{1, 2}", "1, 3"),
    (r"\boxed{1}", "1, 2"),
    (r"\boxed{(2, 1)}", "(1, 2)"),
    (r"\boxed{[1, 2)}", "(1, 2)"),
    (r"\boxed{x < 5}", "x > 5"),
    ("The answer is 7.\n#### 8", "7"),
    ("The answer is A.", "B"),
    (r"\boxed{A}", "B"),
    ("1/0", "0"),
    ("__import__('os').getcwd()", "1"),
]

PRINTED = [
    ("18.0", "18"),
    ("99999.99999999999", "100000"),
    ("3.0000000000000004", "3"),
    ("1e-17", "0"),
    ("-2.5e-05", "-0.000025"),
    ("1.5e+20", r"1.5 \times 10^{20}"),
    ("12345678901234567890", "12345678901234567890"),
    ("2*sqrt(3)**3", r"6\sqrt{3}"),
    ("pi/4", r"\frac{\pi}{4}"),
    ("[1, 2]", "2,1"),
    ("[0.5, 0.25]", r"\frac{1}{4}, \frac{1}{2}"),
    ("[(2, 1)]", "(2,1)"),
    ("{x: 2, y: 1}", "y=1,x=2"),
]


@pytest.fixture(scope="module")
def judged():
    """The verdict on every pair, from one process."""
    pairs = [*RIGHT, *WRONG, *((printed_answer(line), gold) for line, gold in PRINTED)]
    texts, golds = zip(*pairs, strict=True)
    return dict(zip(pairs, exact_match(texts, golds).tolist(), strict=True))


@pytest.mark.parametrize("pair", RIGHT)
def test_notation_does_not_matter(judged, pair):
    assert judged[pair]


@pytest.mark.parametrize("pair", WRONG)
def test_a_wrong_answer_stays_wrong(judged, pair):
    assert not judged[pair]


@pytest.mark.parametrize(("line", "gold"), PRINTED)
def test_what_python_prints_is_read_as_mathematics(judged, line, gold):
    assert judged[printed_answer(line), gold]


def test_there_is_one_answer_per_text():
    right = exact_match(["3 + 4 = 7, so the answer is 7.", "The answer is 8."], ["7"] * 2)
    assert right.dtype == np.bool_
    assert right.tolist() == [True, False]
    assert exact_match([], []).shape == (0,)
    with pytest.raises(DataError, match="1 texts and 2 right answers"):
        exact_match(["7"], ["7", "8"])


def notations(value: Fraction, chance: random.Random) -> list[str]:
    """A rational number as models and data sets write it."""
    top, bottom, times = value.numerator, value.denominator, chance.randint(2, 9)
    found = [f"{top * times}/{bottom * times}", rf"\frac{{{top}}}{{{bottom}}}", rf"\dfrac{{{top}}}{{{bottom}}}"]
    if bottom == 1:
        found += [f"{top}", f"{top:,}", f"{top}.0", f"{top}.00"]
    if 10**4 % bottom == 0:
        found += [str(float(value)), f"{float(value):.4f}"]
    return found


def test_equal_values_are_equal_and_others_are_not_however_they_are_written():
    chance = random.Random(0)
    texts, golds, wanted = list[str](), list[str](), list[bool]()
    for _ in range(300):
        value = Fraction(chance.randint(-5000, 5000), chance.choice([1, 1, 1, 2, 3, 4, 7, 8, 25]))
        other = value + Fraction(chance.choice([-1, 1]) * chance.randint(1, 50), chance.choice([1, 2, 3, 100]))
        same = chance.random() < 0.5
        said = chance.choice(notations(value if same else other, chance))
        announced = chance.choice([r"So $x = 3$ and \boxed{%s}.", "Thus the final answer is $%s$."])
        if "\\" not in said and chance.random() < 0.3:
            announced = "3 + 4 = 7\n#### %s"
        texts.append(announced % said)
        golds.append(chance.choice(notations(value, chance)))
        wanted.append(same)
    found = exact_match(texts, golds).tolist()
    wrongly = [case for case in zip(texts, golds, wanted, found, strict=True) if case[2] != case[3]]
    assert not wrongly
    assert 100 < sum(wanted) < 200


HOSTILE = [
    "9**9**9**9",
    "10**10**10",
    r"\boxed{2^{2^{2^{2^{2^2}}}}}",
    r"\boxed{1000000007^{1000000007}}",
    r"\boxed{100000000!}",
    r"\boxed{" + "(" * 2000 + "1" + ")" * 2000 + "}",
    r"\boxed{" + r"\frac{1}{" * 300 + "2" + "}" * 300 + "}",
    "1" * 100_000,
    "{" * 100_000,
    "$" * 100_000,
    "answer " * 20_000,
    r"\boxed{" * 5000,
    "\x00",
    "\ud800",
]


def test_hostile_answers_are_wrong_within_their_time(monkeypatch):
    monkeypatch.setattr(answers, "_SECONDS", 1)
    began = time.monotonic()
    texts = [text for hostile in HOSTILE for text in (hostile, "5")]
    assert exact_match(texts, ["5"] * len(texts)).tolist() == [False, True] * len(HOSTILE)
    assert time.monotonic() - began < 120  # of about 10; for ever without limits


def test_an_answer_is_looked_for_at_the_end_of_a_long_text():
    rest = "nothing more to say " * 1000
    assert exact_match([f"The answer is 7. {rest}", f"{rest} The answer is 7."], ["7"] * 2).tolist() == [False, True]


def test_a_judge_that_does_not_stop_is_stopped_and_the_next_one_goes_on(monkeypatch):
    monkeypatch.setattr(answers, "_SECONDS", 600)
    monkeypatch.setattr(answers, "_PATIENCE", 2.0)
    assert exact_match(["5", "10**10**10", "5"], ["5"] * 3).tolist() == [True, False, True]


def test_answers_are_judged_in_any_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(exact_match(["7"], ["7"]).tolist()))
    thread.start()
    thread.join()
    assert found == [[True]]


def test_without_math_verify_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(answers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"holdfast\[llm\]"):
        exact_match(["7"], ["7"])


def test_a_math_verify_that_cannot_start_says_why(monkeypatch, tmp_path):
    (tmp_path / "math_verify.py").write_text("raise ImportError('it is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match=r"ImportError: it is broken.*holdfast\[llm\]"):
        exact_match(["7"], ["7"])


@pytest.mark.shared_data
def test_the_answers_of_gsm8k_are_found(shared_data):
    rows = [json.loads(line) for line in (shared_data / "math" / "gsm8k_test.jsonl").read_text().splitlines()]
    derivations, golds = zip(*(row["answer"].split("####") for row in rows), strict=True)
    assert exact_match([row["answer"] for row in rows], golds).all()
    unannounced = [re.sub("<<.*?>>", "", derivation) for derivation in derivations]
    assert exact_match(unannounced, golds).mean() > 0.96
    assert exact_match(unannounced, [*golds[1:], golds[0]]).mean() < 0.03
