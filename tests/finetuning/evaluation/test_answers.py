import json
import re
import time

import numpy as np
import pytest

from holdfast.errors import DataError
from holdfast.finetuning.evaluation import exact_match, extract_answer, same_answer

# The same answer in another notation: as a model may write it, as the data set does.
SAME = [
    ("3", "3"),
    ("3.0", "3"),
    ("3.", "3"),
    ("03", "3"),
    ("-5", "-5"),
    ("\N{MINUS SIGN}5", "-5"),
    ("- 5", "-5"),
    ("+5", "5"),
    ("-0", "0"),
    ("1e-17", "0"),
    ("1,000", "1000"),
    ("1000", "1,000"),
    ("1,450,000", "1450000"),
    ("1{,}000", "1000"),
    (r"12,\!000", "12000"),
    (r"12\,000", "12,000"),
    ("$4.50", "4.5"),
    (r"\$4.50", "4.50"),
    ("-$5", "-5"),
    ("$-5", "-5"),
    ("€20", "20"),
    ("Rs. 50", "50"),
    ("18 dollars", "$18"),
    ("12 apples", "12"),
    ("12", "12 apples"),
    ("5 m", "5"),
    ("5m/s", "5"),
    ("10 km/h", "10"),
    (r"7\text{ cm}^2", "7"),
    (r"90^\circ", "90"),
    (r"45^{\circ}", "45°"),
    ("20°C", "20"),
    ("$12.50/hour", "12.5"),
    ("50%", "50"),
    (r"50\%", "50%"),
    ("50 percent", "50"),
    ("1.5 million", "1500000"),
    ("2 thousand dollars", "2000"),
    ("3/4", "0.75"),
    ("0.75", r"\frac{3}{4}"),
    (r"\frac{1}{2}", "0.5"),
    (r"\dfrac{1}{2}", r"\frac12"),
    (r"\tfrac1{72}", "1/72"),
    (r"-\frac{2}{3}", "-2/3"),
    ("6/8", "3/4"),
    ("1 1/2", "1.5"),
    (r"1\frac{1}{2}", "3/2"),
    ("-1 1/2", "-1.5"),
    ("2½ cups", "2.5"),
    ("0.3333", "1/3"),
    ("0.33333333", "0.33"),
    ("3.14159", "3.14"),
    ("99999.99999999999", "100000"),
    ("1.5e3", "1500"),
    ("1.5 x 10^3", "1500"),
    (r"1.5 \times 10^{3}", "1500"),
    ("2.5\N{MULTIPLICATION SIGN}10^-3", "0.0025"),
    (r"\boxed{42}", "42"),
    ("$42$", "42"),
    (r"\(42\)", "42"),
    (r"\frac{\frac{1}{2}}{3}", "1/6"),
    (r"2\sqrt{3}", "2*sqrt(3)"),
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}"),
    (r"\sqrt[3]{8}", "2"),
    ("√12", "2√3"),
    (r"\frac{\pi}{4}", "pi/4"),
    ("3.14159265", r"\pi"),
    ("2^10", "1024"),
    ("2**10", "2^{10}"),
    ("x = 5", "5"),
    ("3 + 4 = 7", "7"),
    ("2(x + 1)", "2x + 2"),
    (r"x^{2} + 2x + 1", "(x+1)^2"),
    ("1, 2", "2, 1"),
    ("1 and 2", "{1, 2}"),
    ("[2, 1]", "1,2"),
    ("x = 1, y = 2", "y = 2, x = 1"),
    ("{x: 1, y: 2}", "x=1, y=2"),
    ("x = 1, y = 2", "(1, 2)"),
    ("[(1, 2)]", "(1, 2)"),
    ("[12]", "12"),
    ("[np.float64(3.0), np.float64(4.0)]", "3, 4"),
    ("[1. 2.]", "1, 2"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\pi/2)"),
    (r"(-\infty, 3]", "(-inf,3]"),
    (r"\pm 3", "3, -3"),
    (r"1 \pm \sqrt{2}", r"1+\sqrt{2}, 1-\sqrt{2}"),
    ("B", "(B)"),
    ("(b)", "B"),
    ("B) 12 apples", "B"),
    (r"\textbf{(B)}", "B"),
    ("(B) 12", "12"),
    ("option C", "C"),
    ("Monday", "monday"),
    ("2:30 p.m.", "2:30 pm"),
    (r"\text{even}", "Even"),
    ("1011_2", "1011_{2}"),
    (r"x \in [-2, 7]", r"x\in[-2,7]"),
    ("$x>3$", "x > 3"),
]

DIFFERENT = [
    ("", "3"),
    ("3", "4"),
    ("-5", "5"),
    ("5", "-5"),
    ("1,000", "1"),
    ("1,000", "1,001"),
    ("100001", "100000"),
    ("109200001", "109,200,000"),
    ("50%", "0.5"),
    ("0.5", "50%"),
    ("12.3", "12"),
    ("11.6", "12"),
    ("0.3", "1/3"),
    ("3.1", r"\pi"),
    ("3.15", "3.14"),
    ("0.014", "0.01"),
    ("4/3", "3/4"),
    ("11/2", "1 1/2"),
    ("12", r"1\frac{2}{1}"),
    ("1.5", "1.5 million"),
    ("5 km", "5000"),
    ("1.5e3", "1.5"),
    ("15", "1.5"),
    ("1/0", "0"),
    ("9^9^9", "9"),
    ("9**9**9**9", "9**9**9"),
    ("2sqrt(3)", "2sqrt(2)"),
    ("5x", "5"),
    ("x^2", "2x"),
    ("x >= 5", "5"),
    ("x < 5", "x > 5"),
    ("1, 2", "1, 3"),
    ("1", "1, 2"),
    ("1, 2, 2", "1, 2"),
    ("1, 1, 2", "1, 2, 2"),
    ("(2, 1)", "(1, 2)"),
    ("(1, 2)", "[1, 2]"),
    ("(1, 2)", "(1, 2]"),
    ("x = 2, y = 1", "x = 1, y = 2"),
    ("A", "B"),
    ("(A) 12", "(B) 12"),
    ("A, B", "A"),
    ("(A) and (B)", "A"),
    ("B", "12"),
    ("2:30 pm", "2"),
    ("2:30 pm", "230"),
    ("2:30 pm", "2:30 am"),
    ("2 pm", "2 am"),
    ("Monday", "Tuesday"),
    ("none", "0"),
    ("1011", "1011_2"),
    ("7 R 2", "7"),
    ("3:4", "3/4"),
    ("30 or 40", "30"),
    ("nan", "0"),
    ("inf", "10"),
    ("__import__('os').getcwd()", "1"),
    ("12" * 200, "12"),
]

# What a model writes, and the answer in it.
FOUND = [
    ("", None),
    ("   \n", None),
    ("...", None),
    ("12", "12"),
    ("I don't know.", None),
    ("She sold 48 / 2 = 24 clips in May. Altogether 48 + 24 = 72 clips.\n#### 72", "72"),
    ("#### -1,450", "-1,450"),
    ("The answer is 12.", "12"),
    ("The answer is: 12", "12"),
    ("the answer is $4.50.", "$4.50"),
    ("The answer is 12 apples.", "12 apples"),
    ("So the final answer is 1,000.", "1,000"),
    ("Answer: 7", "7"),
    ("**Answer:** 7", "7"),
    ("Final Answer\n\n7", "7"),
    ("The answer to the question is 7.", "7"),
    ("The answer is that she has 7 apples and 2 pears left.", "7"),
    ("The answer is 20 minutes, which is 1/3 of an hour.", "20"),
    ("The answer is 5 and not 7.", "5"),
    ("The answer is 5. Wait, I forgot the dog. The answer is 6.", "6"),
    ("The answer is not 5. It is 7", "7"),
    ("The answer is 16 - 3 - 4 = 9", "16 - 3 - 4 = 9"),
    ("The answer is Monday.", "Monday"),
    ("The answer is 2:30 p.m.", "2:30 p.m."),
    ("The answer is (B).", "(B)"),
    ("The answer is B because 5 > 3.", "B"),
    ("The answer is B. It is 5 times larger.", "B. It is 5 times larger"),
    ("The answer is x = 1, y = 2.", "x = 1, y = 2"),
    ("Hence $x = \\boxed{\\frac{3}{4}}$, since 7 is prime.", r"\frac{3}{4}"),
    (r"\boxed{\sqrt{\frac{1}{2}}} is the answer", r"\sqrt{\frac{1}{2}}"),
    (r"First \boxed{1}, then \boxed{2}.", "2"),
    (r"The answer is $\boxed{5}$.", "5"),
    (r"It is 5, so \boxed{", "5"),
    ("He walks 3 miles and then 4 miles, 7 miles in all.", "7"),
    ("It costs $3 and then $4.25 more.", "$4.25"),
    ("It drops from 3 to -4.", "-4"),
    ("That leaves 10-3", "3"),
    (r"Therefore the share is $\frac{3}{4}$.", r"\frac{3}{4}"),
    ("We add 4.\nThis gives \\(x = 3\\).", "x = 3"),
    ("There are 7 days.\nSo he reads 100*7=$700 in 7 days.", "$700"),
    ("It is about 3 1/2 miles.", "3 1/2"),
    ("The train leaves at 2:30.", "2:30"),
    ("The answer is 12.\n\n### Instruction:\nWhat is 5 + 5?\n\n### Response: The answer is 10.", "12"),
    ("The answer is 12.\nQuestion: What is 5 + 5?\nThe answer is 10.", "12"),
    ("The answer is 3:4.", "3:4"),
    ("The answer is $x > 3$.", "$x > 3$"),
    (r"The answer is \begin{pmatrix} 1 \\ 2 \end{pmatrix}.", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
    (r"x \in [-2, 7]", r"x \in [-2, 7]"),
    ("1011_2", "1011_2"),
    ("yes", "yes"),
    ("[1, 2]", "[1, 2]"),
    ("12.0", "12.0"),
]


@pytest.mark.parametrize(("found", "gold"), SAME)
def test_notation_does_not_matter(found, gold):
    assert same_answer(found, gold)


@pytest.mark.parametrize(("found", "gold"), DIFFERENT)
def test_a_wrong_answer_stays_wrong(found, gold):
    assert not same_answer(found, gold)


@pytest.mark.parametrize(("text", "answer"), FOUND)
def test_the_final_answer_is_found(text, answer):
    assert extract_answer(text) == answer


def test_a_text_is_right_if_its_final_answer_is():
    texts = ["3 + 4 = 7, so the answer is 7.", "The answer is 8.", "", "No idea.", r"\boxed{\frac{14}{2}}"]
    right = exact_match(texts, ["7"] * 5)
    assert right.dtype == np.bool_
    assert right.tolist() == [True, False, False, False, True]
    with pytest.raises(DataError, match="1 texts and 2 right answers"):
        exact_match(["7"], ["7", "8"])


@pytest.mark.parametrize(
    "hostile",
    ["9**9**9**9", "(" * 150, "-" * 199 + "1", "1" * 5000, "{" * 2000, r"\frac" * 50, r"\boxed{" * 500, "^" * 299],
)
def test_hostile_answers_are_read_at_once(hostile):
    began = time.process_time()
    assert not same_answer(hostile, "1")
    extract_answer(hostile)
    assert time.process_time() - began < 0.5


@pytest.mark.shared_data
def test_the_answers_of_gsm8k_are_found(shared_data):
    rows = [json.loads(line) for line in (shared_data / "math" / "gsm8k_test.jsonl").read_text().splitlines()]
    derivations, golds = zip(*(row["answer"].split("####") for row in rows), strict=True)
    assert exact_match([row["answer"] for row in rows], golds).all()
    unannounced = [re.sub("<<.*?>>", "", derivation) for derivation in derivations]
    assert exact_match(unannounced, golds).mean() > 0.98
    assert exact_match(unannounced, [*golds[1:], golds[0]]).mean() < 0.03
