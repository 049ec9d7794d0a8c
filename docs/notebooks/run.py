"""Run the notebooks of this folder and keep what they print and draw: `make notebooks`.

Each runs in a fresh kernel and an empty folder. Times, machines and execution counts are left out of the file, so
that a notebook that gives the same results is the same file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
NOTEBOOKS = tuple(sorted(FOLDER.glob("*.ipynb")))


def run(file: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs that its cells have now.

    Args:
        file: an ``.ipynb`` file; it is not written.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell fails.
    """
    notebook = nbformat.read(file, as_version=4)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")])
    }
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}})
        client.execute(env=environment)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.execution_count = None
            # Progress and warnings of other libraries are about one machine.
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                output.pop("execution_count", None)
                if output.output_type == "execute_result":
                    output.execution_count = None
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]) if sys.argv[1:] else NOTEBOOKS:
        nbformat.write(run(file), file)
