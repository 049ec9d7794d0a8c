from dataclasses import replace

import pytest

from holdfast.errors import ConfigError
from holdfast.papers.engine.execute import Outcome
from holdfast.papers.engine.render import markdown
from tests.papers.test_results import make, outcomes
from tests.papers.toy import toy_experiment

PAGE = """\
# toys/table1: Toys

A book of toys, Table 1, at scale `cpu`. Ours are means over 2 seeds (0, 1), ± the sample standard deviation, beside \
what the document prints.

| cell | score | printed | seconds |
| --- | --- | --- | --- |
| toy/a | 2.5 ± 2.1 | 1.5 ± 0.5 | 3 |
| toy/b | 3.5 ± 2.1 | - | 3 |

## Claims

1 of 2 claims checked at this scale hold.

| claim | verdict | evidence |
| --- | --- | --- |
| b beats a | **holds** | by 1.0 |
| a beats b | **fails** | in 0 of 2 seeds |
| a is large | **not checked** | not checked at this scale, only at paper |

## Repeat it

```sh
holdfast reproduce toys/table1 --scale cpu --seeds 0,1
```

Run at commit `abc` on 2026-01-02 (torch 2, ? cores). Seconds are of one seed on one thread.
"""


def test_the_page_has_ours_beside_theirs_verdicts_and_the_command(tmp_path):
    experiment = toy_experiment(tmp_path)
    assert markdown(make(experiment, outcomes()), experiment) == PAGE


def test_the_page_says_what_did_not_finish(tmp_path):
    experiment = toy_experiment(tmp_path)
    broken = [Outcome("toy/b", seed, None, 1.0, error="no data\nat all") for seed in (0, 1)]
    page = markdown(make(experiment, [*outcomes()[:2], *broken]), experiment)
    assert "| toy/b | failed | - | - |" in page
    assert "**Incomplete.**" in page
    assert "- toy/b, seed 0: no data\n- toy/b" in page


def test_decimals_and_columns_are_the_experiments(tmp_path):
    experiment = toy_experiment(tmp_path, digits=3, columns={})
    page = markdown(make(experiment, outcomes()), experiment)
    assert "| toy/a | 2.500 ± 2.121 | 1.500 ± 0.500 | 3 |" in page


def test_a_cell_that_has_none_of_the_columns_is_not_a_row(tmp_path):
    experiment = toy_experiment(tmp_path)
    other = [Outcome("toy/b", seed, {"other": 1.0}, 1.0) for seed in (0, 1)]
    page = markdown(make(toy_experiment(tmp_path, claims=()), [*outcomes()[:2], *other]), experiment)
    assert "| toy/a |" in page
    assert "| toy/b |" not in page


def test_code_that_was_not_committed_is_admitted(tmp_path):
    experiment = toy_experiment(tmp_path)
    results = replace(make(experiment, outcomes()), environment={"uncommitted_changes": True})
    assert "at commit `abc` with uncommitted changes" in markdown(results, experiment)


def test_an_experiment_that_is_not_given_is_looked_up(tmp_path):
    with pytest.raises(ConfigError, match="no experiment 'toys/table1'"):
        markdown(make(toy_experiment(tmp_path), outcomes()))


def test_a_picture_stands_before_the_table(tmp_path):
    experiment = toy_experiment(tmp_path)
    page = markdown(make(experiment, outcomes()), experiment, picture="../toys.svg")
    assert page.index("![Toys](../toys.svg)\n\n") < page.index("| cell |")
