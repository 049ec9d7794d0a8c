"""The package imports nothing that the oldest Python of pyproject.toml lacks; CI runs a newer one."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What Python 3.11 and later added to modules that 3.10 has.
NEWER = {
    "typing": "Self Never LiteralString Required NotRequired Unpack TypeVarTuple assert_never assert_type reveal_type "
    "dataclass_transform override TypeAliasType ReadOnly TypeIs NoDefault",
    "enum": "StrEnum ReprEnum verify member nonmember",
    "datetime": "UTC",
    "contextlib": "chdir",
    "itertools": "batched",
    "asyncio": "TaskGroup timeout Runner",
    "math": "cbrt exp2 sumprod fma",
    "operator": "call",
    "hashlib": "file_digest",
    "collections.abc": "Buffer",
    "warnings": "deprecated",
    "inspect": "markcoroutinefunction",
}
MODULES = {"tomllib", "annotationlib", "string.templatelib", "compression"}


def newer(tree: ast.AST) -> list[str]:
    """Names and modules in a program that 3.10 does not have."""
    aliases, said = {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            said += [
                f"{node.module}.{each.name}"
                for each in node.names
                if each.name in NEWER.get(node.module or "", "").split()
            ]
            said += [node.module] if node.module in MODULES else []
        elif isinstance(node, ast.Import):
            aliases |= {each.asname or each.name: each.name for each in node.names}
            said += [each.name for each in node.names if each.name in MODULES]
        elif isinstance(node, ast.TryStar):
            said.append("except*")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = aliases.get(node.value.id, "")
            said += [f"{module}.{node.attr}"] if node.attr in NEWER.get(module, "").split() else []
    return said


def test_the_oldest_python_has_all_that_is_imported():
    assert re.search(r'requires-python = ">=3\.10"', (ROOT / "pyproject.toml").read_text()), "NEWER is 3.10's"
    found = {
        str(file.relative_to(ROOT)): names
        for file in sorted((ROOT / "holdfast").rglob("*.py"))
        if (names := newer(ast.parse(file.read_text(encoding="utf-8"))))
    }
    assert not found


def test_what_is_newer_is_seen():
    program = "import math\nfrom typing import Any, Self\nimport tomllib\nmath.cbrt(8)\nmath.sqrt(4)\n"
    assert newer(ast.parse(program)) == ["typing.Self", "tomllib", "math.cbrt"]
