"""The mutation test: the faults it makes, by hand; what it leaves alone; its sample; a run on a tiny tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.mutants.operators import Mutant, mutants_of
from benchmarks.mutants.sample import EQUIVALENT, draw, name_of, read_equivalent
from benchmarks.mutants.targets import select_tests, sources

TREE = Path(__file__).parents[1]


def edits(source: str) -> set[str]:
    found = mutants_of(source, "a.py")
    assert all(mutant.apply(source) != source for mutant in found)
    return {mutant.after for mutant in found}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("y = a <= b", {"y = a < b"}),
        ("y = a not in b", {"y = a in b"}),
        ("y = (a) + (b)", {"y = (a) - (b)"}),
        ("y = a ** b", {"y = a * b"}),
        ("y = -a", {"y = a"}),
        ("y = a and b", {"y = a or b"}),
        ("y += a", {"y -= a", "pass"}),
        ("y = 3", {"y = 4"}),
        ("y = 0.5", {"y = 1.0"}),
        ("y = True", {"y = False"}),
        ("y = 'a'", {"y = 'aXX'"}),
        ("y = a if b else c", {"y = a if not (b) else c"}),
        ("y = [a for a in b if a]", {"y = [a for a in b if not (a)]"}),
        ("y = a.sum()", {"y = a.mean()"}),
        ("y = f(a, b=c)", {"y = f(a)"}),
        ("y = f(b=c)", {"y = f()"}),
        ("f(a)", {"pass"}),
        ("y.a = b", {"pass"}),
        ("raise ValueError('a', 1)", {"pass"}),
        ("if a:\n    y = b", {"if not (a):"}),
        ("if not a:\n    y = b", {"if a:"}),
        ("if a == b:\n    y = b", {"if a != b:"}),
        ("for a in b:\n    break", {"continue"}),
        ("y = (\n    a\n    - b\n)", {"y = ( a + b )"}),
        (
            "ä = 'ö' if a < b else c",
            {"ä = 'öXX' if a < b else c", "ä = 'ö' if a <= b else c", "ä = 'ö' if not (a < b) else c"},
        ),
    ],
)
def test_edits_by_hand(statement: str, expected: set[str]) -> None:
    assert edits(statement + "\n") == expected


@pytest.mark.parametrize(
    "statement",
    [
        '"""Text."""',
        "import a",
        "__all__ = ['a', 'b']",
        "def f(a: int | None) -> Literal['b', 1]: ...",
        "y: Literal['a'] | None = b",
        "Kind = Literal['a', 'b']",
        "log.warning('%s', 1 + 1)",
        "y = f'{a + 1}'",
        "y = isinstance(a, (b | c))",
        "y = cast('int', a)",
        "y = zip(a, b, strict=True)",
        "y = Field(a, description='b', json_schema_extra={'search': [1]})",
        "if TYPE_CHECKING:\n    y = 1",
        "@f(1)\ndef g(): ...",
        "def __repr__(self): return 'a'",
    ],
)
def test_texts_and_types_are_left_alone(statement: str) -> None:
    assert edits(statement + "\n") == set()


def test_a_mutant_is_known_by_its_function_and_text() -> None:
    source = "class A:\n    def f(self):\n        return 1\n\n\ndef f():\n    return 1\n"
    method, function = mutants_of(source, "a.py")
    assert (method.function, function.function) == ("A.f", "f")
    assert (method.line, function.line) == (3, 7)
    assert (method.before, method.after) == ("return 1", "return 2")
    moved = mutants_of("x = y\n\n" + source, "a.py")
    assert [mutant.key for mutant in moved] == [method.key, function.key]
    assert [mutant.line for mutant in moved] == [5, 9]
    assert moved[1].apply("x = y\n\n" + source).endswith("def f():\n    return 2\n")


def test_equal_edits_of_equal_statements_are_told_apart() -> None:
    found = mutants_of("def f():\n    g(1)\n    g(1)\n", "a.py")
    assert len({mutant.key for mutant in found}) == len(found) == 4
    assert len({name_of(mutant) for mutant in found}) == 2


def made(file: str, count: int) -> list[Mutant]:
    return [mutant for i in range(count) for mutant in mutants_of(f"x{i} = {i}\n", file)]


def test_a_sample_is_spread_nested_and_stable() -> None:
    packages = {"a": made("a.py", 20), "b": made("b.py", 3), "c": made("c.py", 20)}
    drawn = draw(packages, 12, seed=0)
    assert [package for package, _ in drawn] == ["a", "b", "c"] * 3 + ["a", "c", "a"]
    assert drawn == draw(packages, 12, seed=0) == draw(packages, 40, seed=0)[:12]
    assert drawn != draw(packages, 12, seed=1)
    assert len(draw(packages, None, seed=0)) == 43
    more = {**packages, "b": [*made("b.py", 3), *made("d.py", 5)]}
    assert [m for package, m in draw(more, 12, seed=0) if package == "a"] == [
        m for package, m in drawn if package == "a"
    ][:4]


def test_every_package_has_tests() -> None:
    for package, files in sources(TREE).items():
        assert files, package
        for file in files:
            assert select_tests(TREE, package, file), file
    assert (
        select_tests(TREE, "penalties", "src/tmln/methods/penalties/mas.py")[0] == "tests/methods/penalties/test_mas.py"
    )
    assert select_tests(TREE, "optim", "src/tmln/optim/checks.py")[-1] == "tests/test_every_component.py"
    assert select_tests(TREE, "data", "src/tmln/data/cifar.py")[0] == "tests/data/test_cifar.py"
    assert "tests/test_every_component.py" not in select_tests(TREE, "streams", "src/tmln/streams/split.py")


def test_what_is_called_equivalent_has_a_reason() -> None:
    for name, reason in read_equivalent(EQUIVALENT).items():
        assert len(reason) > 20, name


def test_a_run(tmp_path: Path) -> None:
    """`>` tested on one side only: the boundary survives; the other function is not tested at all, one is excused."""
    package, tests = tmp_path / "src" / "tmln", tmp_path / "tests"
    package.mkdir(parents=True)
    tests.mkdir()
    (package / "__init__.py").touch()
    (package / "metrics.py").write_text("def positive(x):\n    return x > 0\n\n\ndef one():\n    return 1\n")
    (tests / "test_metrics.py").write_text(
        "from tmln.metrics import positive\n\n\ndef test():\n    assert positive(1) and not positive(-1)\n"
    )
    excused = tmp_path / "equivalent.yaml"
    excused.write_text(
        "- {file: src/tmln/metrics.py, function: one, before: return 1, after: return 2, reason: nobody calls it}\n"
    )
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    options = ["--tree", tmp_path, "--equivalent", excused, "--results", tmp_path / "results", "--jobs", 1]
    command = [sys.executable, "-m", "benchmarks.mutants", *map(str, options)]
    said = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=True).stdout
    assert "survived: src/tmln/metrics.py:2 positive\n-   return x > 0\n+   return x >= 0\n" in said
    assert ["all", "3", "3", "1", "0", "1", "1", "50.0%"] in [
        line.replace("|", " ").split() for line in said.splitlines()
    ]
    assert {path: path.read_bytes() for path in files} == files
    assert len((tmp_path / "results").read_text().splitlines()) == 2
    again = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=True).stdout
    assert "processor time" not in again  # nothing was left to do
    assert again.splitlines()[-3:] == said.splitlines()[-3:]
