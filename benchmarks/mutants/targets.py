"""What is mutated, and which tests judge it: first those that mirror the file, then its room's, then all parts'."""

from __future__ import annotations

from pathlib import Path

PARTS = ("optim", "curvature", "replay", "penalties", "steps", "parts", "learner")  # judged by the walk over all, too
ROOMS = (*PARTS, "data", "streams", "results")
STORE = ("store", "lock", "files", "logfile", "result")
EVERY_PART = "tests/test_every_part.py"
NAMES = ("recipes", "families", "owncode")  # by which parts are called
NAMED = ("tests/test_families.py", "tests/test_own_parts.py", "tests/steps/test_wrapping.py")


def sources(tree: Path) -> dict[str, list[str]]:
    """Room -> its files, relative to the tree."""
    found = {
        room: sorted(path.relative_to(tree).as_posix() for path in (tree / "src/tmln" / room).rglob("*.py"))
        for room in ROOMS
    }
    found |= {"names": [f"src/tmln/{name}.py" for name in NAMES]}
    found |= {"metrics": ["src/tmln/metrics.py"], "store": [f"src/tmln/lab/{name}.py" for name in STORE]}
    return {room: [file for file in files if (tree / file).exists()] for room, files in found.items()}


def judges(tree: Path, room: str, file: str) -> list[str]:
    """Test files in the order in which they are run."""
    if room == "metrics":
        return ["tests/test_metrics.py"]
    if room == "names":
        return [*NAMED, EVERY_PART]
    folder, names = ("lab", STORE) if room == "store" else (room, ("*",))
    mirrored = [f"tests/{folder}/test_{Path(file).stem}.py"]
    found = [path for name in names for path in sorted((tree / "tests" / folder).glob(f"test_{name}.py"))]
    near = [*(NAMED if room == "parts" else ()), *(path.relative_to(tree).as_posix() for path in found)]
    ordered = dict.fromkeys([*mirrored, *near, *([EVERY_PART] if room in PARTS else [])])
    return [test for test in ordered if (tree / test).exists()]
