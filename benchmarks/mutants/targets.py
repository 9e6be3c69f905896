"""Select what is mutated, and its tests: the mirrored test file, then its package's, then all components'."""

from __future__ import annotations

from pathlib import Path

COMPONENTS = ("optim", "curvature", "distributed", "methods", "learner")  # tests over all components apply to these
PACKAGES = (*COMPONENTS, "data", "streams", "analysis")
STORE = ("store", "lock", "files", "logfile", "result")
EVERY_COMPONENT = "tests/test_every_component.py"
NAMED = (
    "tests/methods/test_registry.py",
    "tests/test_own_components.py",
    "tests/methods/steps/test_wrapping.py",
)


def sources(tree: Path) -> dict[str, list[str]]:
    """Return the files of each package, relative to the tree."""
    found = {
        package: sorted(path.relative_to(tree).as_posix() for path in (tree / "src/tmln" / package).rglob("*.py"))
        for package in PACKAGES
    }
    found |= {"names": ["src/tmln/user_code.py"], "metrics": ["src/tmln/metrics.py"]}
    found |= {"store": [f"src/tmln/experiments/{name}.py" for name in STORE]}
    return {package: [file for file in files if (tree / file).exists()] for package, files in found.items()}


def select_tests(tree: Path, package: str, file: str) -> list[str]:
    """Return test files in the order in which they are run."""
    if package == "metrics":
        return ["tests/test_metrics.py"]
    if package == "names":
        return [*NAMED, EVERY_COMPONENT]
    mirrored = Path("tests") / Path(file).relative_to("src/tmln").parent
    names = STORE if package == "store" else ("*",)
    found = [path for name in names for path in sorted((tree / mirrored).glob(f"test_{name}.py"))]
    near = [*(NAMED if package == "methods" else ()), *(path.relative_to(tree).as_posix() for path in found)]
    first = (mirrored / f"test_{Path(file).stem}.py").as_posix()
    ordered = dict.fromkeys([first, *near, *([EVERY_COMPONENT] if package in COMPONENTS else [])])
    return [test for test in ordered if (tree / test).exists()]
