import pytest

from holdfast.papers.spare.digits import DIGITS
from tests.papers.spurious_results import words

#: Worst group, average and number of clusters by part and row.
CALIBRATED = {
    "s1": {"erm": (18, 62, 2), "class-balanced": (25, 62, 2), "spare": (76, 89, 2), "group-balanced": (80, 90, 2)},
    "s2": {"erm": (0, 27, 5), "class-balanced": (0, 26, 5), "spare": (30, 63, 5), "group-balanced": (33, 63, 5)},
    "s3": {
        "erm": (0, 20, 5),
        "class-balanced": (0, 20, 5),
        "spare": (40, 75, 5),
        "group-balanced": (40, 75, 5),
        "spare on logits": (26, 72, 2),
        "jtt": (35, 73, 5),
        "confidence-only": (31, 72, 2),
        "merged-minorities": (32, 73, 5),
    },
    "s4": {"erm": (0, 21, 5), "spare": (9, 41, 5), "spare, tuned": (14, 38, 5)},
    "s5": {"pde": (85, 87, 2), "pde with the groups of spare": (83, 86, 2)},
}


def numbers(**changes):
    """The protocol's numbers by cell, with other ones by ``part_row``."""
    found = {}
    for part, rows in CALIBRATED.items():
        for row, usual in rows.items():
            worst, average, k = changes.get(f"{part}_{row}", usual)
            column = "digits" if part in ("s1", "s5") else "digits5"
            metrics = {"worst_group": worst, "average": average, "k_median": k, "precision": 1.0, "recall": 1.0}
            found[f"{column}/{part}/{row}"] = {name: [float(value)] * 3 for name, value in metrics.items()}
    return found


def test_the_calibrated_numbers_satisfy_every_claim():
    assert set(words(DIGITS, numbers()).values()) == {"holds"}


@pytest.mark.parametrize(
    ("cell", "values", "fails"),
    [
        ("s1_erm", (40, 70, 2), "S1: SPARE repairs what plain training ignores, about as well as true groups do"),
        ("s1_group-balanced", (95, 96, 2), "S1: SPARE repairs what plain training ignores, about as well as"),
        ("s2_spare", (30, 63, 2), "S2: with five classes the minorities are found and helped"),
        ("s3_confidence-only", (31, 72, 5), "S3: the whole softmax keeps minorities apart, confidence alone"),
        ("s3_merged-minorities", (45, 73, 5), "S3: keeping minorities apart beats merging them, even the true ones"),
        ("s3_spare on logits", (36, 72, 2), "S3: clustering softmax outputs beats clustering logits"),
        ("s2_class-balanced", (29, 50, 5), "class balancing stays near plain training and far below SPARE"),
        (
            "s5_pde with the groups of spare",
            (70, 80, 2),
            "S5: SPARE's clusters serve PDE nearly as well as true groups",
        ),
    ],
)
def test_every_claim_can_fail(cell, values, fails):
    found = words(DIGITS, numbers(**{cell: values}))
    assert [verdict for name, verdict in found.items() if name.startswith(fails)] == ["fails"]


@pytest.mark.parametrize(("row", "claim"), [("s1/spare", "S1: one epoch"), ("s4/spare, tuned", "S4: tuning")])
def test_one_seed_that_splits_a_majority_fails_a_claim_on_inference(row, claim):
    given = numbers()
    cell = f"{'digits' if row[1] == '1' else 'digits5'}/{row}"
    given[cell]["precision"] = [1.0, 0.05, 1.0]
    assert [verdict for name, verdict in words(DIGITS, given).items() if name.startswith(claim)] == ["fails"]


def test_a_lead_within_the_noise_is_not_judged():
    given = numbers()
    given["digits5/s3/merged-minorities"]["worst_group"] = [20.0, 60.0, 40.0]
    name = "S3: keeping minorities apart beats merging them, even the true ones"
    assert words(DIGITS, given)[name] == "not judged"
