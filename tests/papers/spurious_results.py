"""Made-up results of SPARE's and PDE's experiments, for tests of their claims."""

from holdfast.papers.engine.results import CellResult, Measured, Metric, Results, judge, with_printed


def judged(experiment, numbers, scale="cpu"):
    """The verdict on each claim for values by cell and metric: a number for one seed, several for one each."""
    cells = []
    for cell in experiment.cells_at(scale):
        if cell.name not in numbers:
            cells.append(CellResult(cell.name, {}, version=None))
            continue
        rows = {
            name: tuple(value) if isinstance(value, (list, tuple)) else (value,)
            for name, value in numbers[cell.name].items()
        }
        metrics = {name: Metric(Measured.of(values, experiment.spread)) for name, values in rows.items()}
        cells.append(CellResult(cell.name, metrics, seeds=tuple(range(max(map(len, rows.values()))))))
    results = Results(experiment.name, scale, (0, 1, 2), with_printed(experiment, cells))
    return {claim.name: claim for claim in judge(experiment, results).claims}


def words(experiment, numbers, scale="cpu"):
    """`judged`, the words alone, without claims of other scales."""
    found = judged(experiment, numbers, scale)
    return {name: claim.verdict for name, claim in found.items() if not claim.evidence.startswith("only at scale")}
