from dataclasses import replace

import pytest

from holdfast.errors import ConfigError
from holdfast.papers.engine.execute import CellOutcome
from holdfast.papers.engine.render import markdown
from tests.papers.engine.test_results import ORIGIN, outcomes
from tests.papers.toy import measured, toy_experiment

PAGE = """\
# toys/table1: Toys

A book of toys, Table 1, at scale `cpu`. Ours are means over 2 seeds (0, 1), ± the sample standard deviation, beside \
what the document prints.

| cell | score | printed | seconds |
| --- | --- | --- | --- |
| toy/a | 2.5 ± 2.1 | 1.5 ± 0.5 | 3 |
| toy/b | 3.5 ± 2.1 | - | 3 |

## Claims

Of 3 claims, 1 holds, 1 fails and 1 is not judged.

| claim | verdict | evidence |
| --- | --- | --- |
| b beats a | **holds** | by 1.0 |
| a beats b | **fails** | in 0 of 2 seeds |
| a is large | **not judged** | only at scale paper |

## Repeat it

```sh
holdfast reproduce toys/table1 --scale cpu --seeds 0,1
```

Measured at commit `abc` on 2026-01-02 (torch 2, ? cores). Seconds are of one seed on one thread. \
Versions of the cells: 1.
"""


def test_the_page_has_ours_beside_theirs_verdicts_and_the_command(tmp_path):
    experiment = toy_experiment(tmp_path)
    assert markdown(measured(experiment, outcomes()), experiment) == PAGE


def test_the_page_says_what_did_not_finish(tmp_path):
    experiment = toy_experiment(tmp_path)
    broken = [CellOutcome("toy/b", seed, None, 1.0, error="no data\nat all", origin=ORIGIN) for seed in (0, 1)]
    page = markdown(measured(experiment, [*outcomes()[:2], *broken]), experiment)
    assert "| toy/b | failed | - | - |" in page
    assert "**Incomplete.**" in page
    assert "- toy/b, seed 0: no data\n- toy/b" in page


def test_decimals_and_columns_are_the_experiments(tmp_path):
    experiment = toy_experiment(tmp_path, digits=3, columns={})
    page = markdown(measured(experiment, outcomes()), experiment)
    assert "| toy/a | 2.500 ± 2.121 | 1.500 ± 0.500 | 3 |" in page


def test_a_cell_that_has_none_of_the_columns_is_not_a_row(tmp_path):
    experiment = toy_experiment(tmp_path)
    other = [CellOutcome("toy/b", seed, {"other": 1.0}, 1.0, origin=ORIGIN) for seed in (0, 1)]
    page = markdown(measured(toy_experiment(tmp_path, claims=()), [*outcomes()[:2], *other]), experiment)
    assert "| toy/a |" in page
    assert "| toy/b |" not in page


def test_code_that_was_not_committed_is_admitted(tmp_path):
    experiment = toy_experiment(tmp_path)
    found = [replace(each, origin={**ORIGIN, "uncommitted_changes": True}) for each in outcomes()]
    assert "at commit `abc` with uncommitted changes on" in markdown(measured(experiment, found), experiment)


def test_every_commit_that_cells_come_from_is_named(tmp_path):
    experiment = toy_experiment(tmp_path)
    later = {**ORIGIN, "commit": "def", "date": "2026-03-04T00:00:00+00:00"}
    found = [*outcomes()[:2], *(replace(each, origin=later) for each in outcomes()[2:])]
    page = markdown(measured(experiment, found), experiment)
    assert "at commit `abc` on 2026-01-02; at commit `def` on 2026-03-04" in page


def test_cells_that_are_missing_or_older_are_named(tmp_path):
    experiment = toy_experiment(tmp_path)
    page = markdown(measured(experiment, outcomes()[:2]), experiment)
    assert "**Not measured yet:** toy/b." in page
    results = measured(experiment, outcomes())
    older = replace(results, cells=(replace(results.cells[0], wanted=2), results.cells[1]))
    assert "toy/a (version 1, today's is 2). No claim is judged by them." in markdown(older, experiment)


def test_a_failing_claim_says_why_and_a_claim_of_ours_is_marked(tmp_path):
    plain = toy_experiment(tmp_path)
    claims = [replace(claim, why="our toys are small", ours=True) for claim in plain.claims]
    experiment = replace(plain, claims=tuple(claims), notes={"cpu": "Mind the gap."})
    page = markdown(measured(experiment, outcomes()), experiment)
    assert "| a beats b¹ | **fails** | in 0 of 2 seeds. *Why:* our toys are small |" in page
    assert "| b beats a¹ | **holds** | by 1.0 |" in page
    assert "¹ The sentence or its threshold is ours" in page
    assert page.index("Mind the gap.") < page.index("## Claims")


def test_an_experiment_that_is_not_given_is_looked_up(tmp_path):
    with pytest.raises(ConfigError, match="no experiment 'toys/table1'"):
        markdown(measured(toy_experiment(tmp_path), outcomes()))


def test_a_picture_stands_before_the_table(tmp_path):
    experiment = toy_experiment(tmp_path)
    page = markdown(measured(experiment, outcomes()), experiment, picture="../toys.svg")
    assert page.index("![Toys](../toys.svg)\n\n") < page.index("| cell |")
