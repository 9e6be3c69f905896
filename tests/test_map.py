"""Every import follows the order of packages in docs/architecture.md, which is the only place that states it.

Imports for types only, and modules named by a string that is imported on demand, may point the other way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tmln

SOURCE = Path(tmln.__file__).parent
DOCUMENT = Path(__file__).parents[1] / "docs" / "architecture.md"


def read_packages(text: str) -> list[str]:
    """Return the packages of the table, in order."""
    _, _, rest = text.partition("| package | contents |\n|---|---|\n")
    return [line.split("`")[1] for line in rest.split("\n\n")[0].splitlines()]


def package_of(module: str, source: Path = SOURCE) -> str:
    """Return ``experiments/`` for ``tmln.experiments.run``, ``seeds.py`` for ``tmln.seeds``, else ``__init__.py``."""
    name = (module.split(".") + [""])[1]
    if name and (source / name).is_dir():
        return f"{name}/"
    return f"{name}.py" if name and (source / f"{name}.py").exists() else "__init__.py"


def for_types(tree: ast.Module) -> set[ast.AST]:
    """Return the nodes under ``if TYPE_CHECKING``."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {inner for block in blocks for line in block.body for inner in ast.walk(line)}


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the modules and names that a file imports, anywhere in it, except for types."""
    types = for_types(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and node not in types:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node not in types:
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def find_violations(packages: list[str], source: Path = SOURCE) -> list[str]:
    """Return packages that only the table or only the code has, and imports that point down."""
    rank = {name: k for k, name in enumerate(packages)}
    found: dict[str, set[str]] = {}
    for file in sorted(source.rglob("*.py")):
        own = package_of("tmln." + ".".join(file.relative_to(source).with_suffix("").parts), source)
        modules = [
            name for name in imports(ast.parse(file.read_text(encoding="utf-8"))) if name.split(".")[0] == "tmln"
        ]
        found.setdefault(own, set()).update(package_of(name, source) for name in modules)
    wrong = [f"{name}: not in the table" for name in found.keys() - rank.keys()]
    wrong += [f"{name}: not in the code" for name in rank.keys() - found.keys()]
    for own, used in found.items():
        wrong += [f"{own} imports {name}, which is below it" for name in used if rank.get(name, 0) > rank.get(own, 0)]
    return sorted(wrong)


def test_imports_follow_the_order() -> None:
    packages = read_packages(DOCUMENT.read_text(encoding="utf-8"))
    assert len(packages) > 20
    assert find_violations(packages) == []


def test_architecture_is_short() -> None:
    assert len(DOCUMENT.read_text(encoding="utf-8").split()) <= 1500


def test_reading_data_needs_no_torch() -> None:
    for file in (SOURCE / "data").glob("*.py"):
        found = imports(ast.parse(file.read_text(encoding="utf-8")))
        assert not any(module.split(".")[0] == "torch" for module in found), file.name


CODE = {
    "__init__.py": "",
    "seeds.py": "",
    "experiments/__init__.py": "from tmln import __version__",
    "experiments/run.py": "def run():\n    from tmln.seeds import seed_of",
    "cli/__init__.py": "if TYPE_CHECKING:\n    import tmln.experiments.run",
}
ORDER = ["__init__.py", "seeds.py", "experiments/", "cli/"]


@pytest.mark.parametrize(
    ("file", "text", "order", "expected"),
    [
        (None, "", ORDER, []),
        ("cli/app.py", "def main():\n    import tmln.experiments.run", ORDER, []),
        ("seeds.py", "from tmln import experiments", ORDER, ["seeds.py imports experiments/, which is below it"]),
        ("seeds.py", "HOME = 'tmln.experiments.run'", ORDER, []),
        ("plots/__init__.py", "", ORDER, ["plots/: not in the table"]),
        (None, "", [*ORDER, "plots/"], ["plots/: not in the code"]),
        (None, "", [ORDER[0], *ORDER[2:0:-1], ORDER[3]], ["experiments/ imports seeds.py, which is below it"]),
    ],
)
def test_violations_are_found(
    tmp_path: Path, file: str | None, text: str, order: list[str], expected: list[str]
) -> None:
    for name, content in {**CODE, **({} if file is None else {file: text})}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert find_violations(order, tmp_path) == expected
