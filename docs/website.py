"""The documentation as a site: `python docs/website.py`, or `make site`.

Pages are written for readers of the repository, as plain markdown. A site has one root, so they are staged for it
first, below build/site/pages: a folder's README becomes its index, CONTRIBUTING, SECURITY and the changelog get a
place, links that leave docs/ lead there, notebooks become pages, and every package with public names gets a page of
the API reference. What is staged is markdown and a configuration that another builder could read as well.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CONFIG = ROOT / "mkdocs.yml"
SITE = ROOT / "build" / "site"

#: Pages and files outside docs/ that the site shows, and where.
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}
FILES = {"results": (".svg", ".log"), "docs/images": (".png", ".svg"), "docs/site": (".css", ".js")}

#: Packages whose public names have a page of the reference, with what they are about.
REFERENCE = {
    "holdfast": "The names that most programs need",
    "data": "Data: examples, readers, data sets, clients",
    "models": "Networks, and finding a model's head",
    "training": "Training: plans, policies, the curator, evaluation",
    "spurious": "Methods against spurious correlations",
    "coresets": "Training on fewer examples",
    "poisoning": "Defences against poisons",
    "federated": "Federations: rules, attacks, personal models",
    "finetuning": "Choosing fine-tuning data",
    "multimodal": "Vision-language models",
    "report": "Report pages",
    "errors": "Errors and warnings",
}

#: How much a page counts in the search: tables of results and signatures have every word, guides have the answer.
BOOST = {"guides": 8, "methods": 2, "results": 0.25, "reference": 0.25, "measured": 0.25}

_LINK = re.compile(r"(?P<before>\]\()(?P<path>(?!\w+:)[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def place(file: Path) -> str | None:
    """Where the site has a file of the repository, or None where it hasn't.

    Args:
        file: inside the repository.
    """
    name = file.relative_to(ROOT).as_posix()
    if name in OUTSIDE:
        return OUTSIDE[name]
    if name.startswith("docs/") and file.suffix in (".md", ".ipynb"):
        inside = Path(name).relative_to("docs")
        return inside.with_name("index.md" if inside.name == "README.md" else f"{inside.stem}.md").as_posix()
    if name == "README.md":
        return "index.md"
    for folder, kinds in FILES.items():
        if name.startswith(f"{folder}/") and file.suffix in kinds:
            return Path(name).relative_to("docs").as_posix() if folder.startswith("docs/") else f"measured/{name}"
    return None


def rewritten(text: str, source: Path) -> str:
    """The text of a page with every link leading to a page or file of the site; the build reports one that doesn't."""
    own = place(source)
    assert own is not None

    def inside(match: re.Match[str]) -> str:
        target = place((source.parent / match["path"]).resolve())
        path = match["path"] if target is None else os.path.relpath(target, Path(own).parent)
        return f"{match['before']}{path}{match['anchor'] or ''})"

    parts = _FENCE.split(text)  # every second part is code, where brackets are no links
    joined = [part if number % 2 else _LINK.sub(inside, part) for number, part in enumerate(parts)]
    return "".join(joined).replace(" ± ", "\u00a0±\u00a0")  # so that a cell of a table never ends behind the sign


def notebook_page(file: Path) -> str:
    """A notebook as markdown: its code, and below each cell what it printed and drew when it was last run."""
    link = f"*This page is a notebook, [{file.name}]({file.name}): download it and run it cell by cell.*"
    parts: list[str] = []
    for cell in json.loads(file.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_output(output) for output in cell["outputs"]]
    parts.insert(1, link)
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f'```text title="Output"\n{_ESCAPE.sub("", "".join(output["text"])).rstrip()}\n```'
    data = output["data"]
    if "text/html" in data:
        return f'<div class="output">\n{"".join(data["text/html"])}\n</div>'
    if "image/png" in data:
        return f"![What the cell drew](data:image/png;base64,{data['image/png'].strip()})"
    return f'```text title="Output"\n{"".join(data["text/plain"]).rstrip()}\n```'


def public_names(package: str) -> list[str]:
    """The names in ``__all__`` of a package, read without importing it; of ``errors``, its classes."""
    folder = ROOT / "holdfast"
    file = folder / "__init__.py" if package == "holdfast" else folder / package / "__init__.py"
    body = ast.parse((file if file.exists() else folder / f"{package}.py").read_text()).body
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return [node.name for node in body if isinstance(node, ast.ClassDef)]


def reference_pages() -> dict[str, str]:
    """The API reference: an index and a page for each package, as text by place."""
    pages = {}
    lines = [
        "# API reference",
        "",
        "Public names by package, from their docstrings.",
        "",
        "| package | |",
        "| --- | --- |",
    ]
    for package, about in REFERENCE.items():
        path = "holdfast" if package == "holdfast" else f"holdfast.{package}"
        names = [name for name in public_names(package) if package != "holdfast" or name not in REFERENCE]
        entries = "\n\n".join(f"::: {path}.{name}" for name in names)
        pages[f"reference/{package}.md"] = f"# {path}\n\n{about}.\n\n{entries}\n"
        lines.append(f"| [`{path}`]({package}.md) | {about} |")
    return {"reference/index.md": "\n".join(lines) + "\n"} | pages


def result_pages() -> list[Path]:
    """Pages of results, those of the library first and then document by document."""
    found = sorted((DOCS / "results").rglob("*.md"))
    return sorted(found, key=lambda page: (page.name != "README.md", page.parent != DOCS / "results"))


def navigation(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The navigation of mkdocs.yml, for the staged pages, with the two sections that are filled in."""
    filled: list[dict[str, Any]] = []
    for entry in entries:
        ((title, value),) = entry.items()
        if value == "reference/...":
            pages = [f"reference/{package}.md" for package in ("index", *REFERENCE)]
            filled.append({title: [{"Packages": pages[0]}, *[{Path(page).stem: page} for page in pages[1:]]]})
        elif value == "results/...":
            filled.append({title: list(_results())})
        elif isinstance(value, str):
            filled.append({title: place((DOCS / value).resolve())})
        else:
            filled.append({title: navigation(value)})
    return filled


def _results() -> Iterator[dict[str, Any]]:
    folders: dict[str, list[dict[str, str | None]]] = {}
    for page in result_pages():
        name = "All results" if page.name == "README.md" else page.stem.removesuffix(".cpu")
        if page.parent == DOCS / "results":
            yield {name: place(page)}
        else:
            folders.setdefault(page.parent.name, []).append({name: place(page)})
    yield from ({folder: pages} for folder, pages in folders.items())


def stage(site: Path = SITE) -> Path:
    """Write the pages and the configuration that the site is built from.

    Args:
        site: a folder; ``pages`` and ``mkdocs.yml`` in it are written anew.

    Returns:
        The configuration.
    """
    pages = site / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    sources = [*DOCS.rglob("*.md"), *(ROOT / name for name in OUTSIDE)]
    texts = {place(source): rewritten(source.read_text(), source) for source in sources}
    for notebook in DOCS.rglob("*.ipynb"):
        texts[place(notebook)] = rewritten(notebook_page(notebook), notebook)
    for name, text in (texts | reference_pages()).items():
        boost = BOOST.get(Path(str(name)).parts[0], 1)
        _write(pages / str(name), f"---\nsearch:\n  boost: {boost}\n---\n\n{text}")
    for folder, kinds in FILES.items():
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in kinds:
                _copy(file, pages / str(place(file)))
    for notebook in DOCS.rglob("*.ipynb"):
        _copy(notebook, pages / notebook.relative_to(DOCS))
    return _configuration(site)


def _configuration(site: Path) -> Path:
    head, _, nav = CONFIG.read_text().partition("\nnav:\n")  # the head has a tag of YAML that only the builder reads
    filled = yaml.safe_dump({"nav": navigation(yaml.safe_load(nav))}, sort_keys=False, allow_unicode=True)
    head = head.replace("paths: [../..]", f"paths: [{json.dumps(str(ROOT))}]")
    _write(site / "mkdocs.yml", f"{head}\n{filled}")
    return site / "mkdocs.yml"


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _copy(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)


def build(site: Path = SITE) -> Path:
    """Stage the pages and build the site; a link that leads nowhere, or a page without a place, fails.

    Returns:
        The folder of the site; ``index.html`` in it may be opened as a file.
    """
    configuration = stage(site)
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--config-file", str(configuration)]
    subprocess.run(command, check=True, env=environment)  # noqa: S603
    return site / "html"


if __name__ == "__main__":
    print(f"{build() / 'index.html'}")  # noqa: T201
