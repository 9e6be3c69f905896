"""Which way the arrow points: data know nothing of tasks, and tasks nothing of learners and runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tmln

SOURCE = Path(tmln.__file__).parent
ALLOWED = {"data": {"data", "progress", "suggest", "writing"}, "streams": {"seeds", "streams", "data", "suggest"}}


def imported(file: Path) -> set[str]:
    """The modules that a file names in its imports, those within functions and for types too."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            found.add(str(node.module))
    return found


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_knows_the_rooms_above_it(room: str) -> None:
    files = sorted((SOURCE / room).glob("*.py"))
    assert len(files) > 10
    for file in files:
        ours = [name.split(".") for name in imported(file) if name.split(".")[0] == "tmln"]
        assert all(len(name) > 1 and name[1] in ALLOWED[room] for name in ours), (file.name, ours)


def test_reading_data_needs_no_torch() -> None:
    for file in (SOURCE / "data").glob("*.py"):
        assert not any(name.split(".")[0] == "torch" for name in imported(file)), file.name
