"""The map: docs/architecture.md says which rooms there are and which a room uses, and every import is held to it.

The table there is the only source. A room may use the rooms above it. What it merely names, for types or to look it up
by its name later, may be below: that loads nothing.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

import tmln

SOURCE = Path(tmln.__file__).parent
DOCUMENT = Path(__file__).parents[1] / "docs" / "architecture.md"
ROOT = "tmln"  # the package itself
Arrows = Mapping[str, set[tuple[str, str]]]


class Row(NamedTuple):
    """A line of the table of rooms."""

    room: str
    sentence: str
    used: tuple[str, ...]
    named: tuple[str, ...]


def read_table(text: str) -> list[Row]:
    """``| `seeds.py` | One seed ... | - | - |`` and the lines after it."""
    _, _, rest = text.partition("| room | what it does | uses | only names |\n|---|---|---|---|\n")
    rows = []
    for line in rest.split("\n\n")[0].splitlines():
        room, sentence, used, named = (cell.strip() for cell in line.strip("|").split("|"))
        rows.append(Row(room.strip("`"), sentence, *(tuple(re.findall(r"`(.+?)`", cell)) for cell in (used, named))))
    return rows


def home(room: str, source: Path = SOURCE) -> Path:
    """The file that says what a room is."""
    return (
        source / "__init__.py" if room == ROOT else source / room / "__init__.py" if room[-1] == "/" else source / room
    )


def room_of(module: str, source: Path = SOURCE) -> str:
    """``tmln.lab.run`` is in ``lab/``, ``tmln.seeds`` in ``seeds.py``, ``tmln.__version__`` in the package itself."""
    name = (module.split(".") + [""])[1]
    if name and (source / name).is_dir():
        return f"{name}/"
    return f"{name}.py" if name not in ("", "__init__") and (source / f"{name}.py").exists() else ROOT


def for_types(tree: ast.Module) -> set[ast.AST]:
    """What stands under ``if TYPE_CHECKING``."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {inner for block in blocks for line in block.body for inner in ast.walk(line)}


def imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """The modules and names that a file imports, anywhere in it, and whether only for types or as a text."""
    types = for_types(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from ((f"{node.module}.{alias.name}", node in types) for alias in node.names)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"tmln(\.\w+)+", node.value)
        ):
            yield node.value, True


def arrows(source: Path = SOURCE) -> Arrows:
    """From room to room: those ``used``, and those that are only ``named``."""
    found: Arrows = defaultdict(set)
    for file in sorted(source.rglob("*.py")):
        room = room_of("tmln." + ".".join(file.relative_to(source).with_suffix("").parts), source)
        for module, named in imports(ast.parse(file.read_text(encoding="utf-8"))):
            to = room_of(module, source)
            if module.split(".")[0] == "tmln" and to != room:
                found["named" if named else "used"].add((room, to))
    found["named"] -= found["used"]
    return found


def differences(rows: list[Row], source: Path = SOURCE) -> list[str]:
    """All in which the table and the code disagree, in words."""
    places = {row.room: k for k, row in enumerate(rows)}
    files = {
        room_of("tmln." + path.relative_to(source).parts[0].removesuffix(".py"), source)
        for path in source.rglob("*.py")
    }
    said = [f"{room}: not in the table" for room in files - places.keys()]
    said += [f"{room}: not in the code" for room in places.keys() - files]
    found = arrows(source)
    for kind in ("used", "named"):
        table = {(row.room, to) for row in rows for to in getattr(row, kind)}
        said += [f"{room} -> {to}: {kind}, and not in the table" for room, to in found[kind] - table]
        said += [f"{room} -> {to}: in the table, and not {kind}" for room, to in table - found[kind]]
        if kind == "used":
            upward = (
                (room, to) for room, to in table | found[kind] if places.get(to, 0) >= places.get(room, len(rows))
            )
            said += [f"{room} -> {to}: points to a room below" for room, to in upward]
    return sorted(said)


ROWS = read_table(DOCUMENT.read_text(encoding="utf-8"))


def test_the_map_is_true() -> None:
    assert len(ROWS) > 20
    assert differences(ROWS) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.room)
def test_a_room_says_its_sentence(row: Row) -> None:
    tree = ast.parse(home(row.room).read_text(encoding="utf-8"))
    said = str(ast.get_docstring(tree)).replace("``", "`")
    said = said if row.room.endswith("/") else said.split("\n\n")[0]  # a module goes on
    assert said == row.sentence
    assert said.count(". ") == 0, "one sentence"


def test_reading_data_needs_no_torch() -> None:
    for file in (SOURCE / "data").glob("*.py"):
        found = [module for module, _ in imports(ast.parse(file.read_text(encoding="utf-8")))]
        assert not any(module.split(".")[0] == "torch" for module in found), file.name


HOUSE = {
    "__init__.py": "",
    "seeds.py": "",
    "lab/__init__.py": "from tmln import __version__",
    "lab/run.py": "def run():\n    from tmln.seeds import seed_of",
    "cli/__init__.py": "if TYPE_CHECKING:\n    import tmln.lab.run",
}
TABLE = [
    Row("tmln", "", (), ()),
    Row("seeds.py", "", (), ()),
    Row("lab/", "", ("tmln", "seeds.py"), ()),
    Row("cli/", "", (), ("lab/",)),
]


@pytest.mark.parametrize(
    ("file", "text", "rows", "said"),
    [
        (None, "", TABLE, []),
        ("lab/store.py", "import tmln.seeds", TABLE, []),
        ("cli/app.py", "def main():\n    import tmln.lab.run", TABLE,
         ["cli/ -> lab/: in the table, and not named", "cli/ -> lab/: used, and not in the table"]),
        ("seeds.py", "from tmln import lab", TABLE,
         ["seeds.py -> lab/: points to a room below", "seeds.py -> lab/: used, and not in the table"]),
        ("seeds.py", "HOME = 'tmln.lab.run'", TABLE, ["seeds.py -> lab/: named, and not in the table"]),
        ("lab/run.py", "", TABLE, ["lab/ -> seeds.py: in the table, and not used"]),
        ("draw/__init__.py", "", TABLE, ["draw/: not in the table"]),
        (None, "", [*TABLE, Row("draw/", "", (), ())], ["draw/: not in the code"]),
        (None, "", [TABLE[0], TABLE[2], TABLE[1], TABLE[3]], ["lab/ -> seeds.py: points to a room below"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(tmp_path: Path, file: str | None, text: str, rows: list[Row], said: list[str]) -> None:
    for name, content in {**HOUSE, **({} if file is None else {file: text})}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert differences(rows, tmp_path) == said


def test_a_line_of_the_table_is_read() -> None:
    head = "| room | what it does | uses | only names |\n|---|---|---|---|\n"
    assert read_table(head + "| `a/` | What `x` is. | `b.py`, `tmln` | - |\n\n| `c` | d | - | - |") == [
        Row("a/", "What `x` is.", ("b.py", "tmln"), ())
    ]
