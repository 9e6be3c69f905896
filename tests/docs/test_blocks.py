"""Every block of code in README and docs runs as it stands, page by page; every command in them exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement
from typer.main import get_command

from tests.docs.blocks import FENCE, PAGES, ROOT, blocks, commands, name_of
from tests.docs.scenes import SCENES
from tests.release.project import toml
from tmln.cli import app

CODE = {
    name_of(page): found
    for page in PAGES
    if (found := [block for block in blocks(page.read_text(encoding="utf-8")) if block.language == "python"])
}
TYPED = sorted({(name_of(page), command) for page in PAGES for command in commands(page.read_text(encoding="utf-8"))})
EXAMPLES = [path.read_text(encoding="utf-8").strip() for path in (ROOT / "examples").glob("*.py")]
TARGETS = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning", "ignore:.*many workers:UserWarning")  # Lightning's own
@pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed:FutureWarning")
@pytest.mark.parametrize("page", sorted(CODE))
def test_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own; a block that begins with a file's name is that file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(CODE[page]):
        if "integrations.avalanche" in block.code and importlib.util.find_spec("avalanche") is None:
            continue  # `make test-peers` has it
        if any(block.code.strip() == example for example in EXAMPLES):
            continue  # tests/test_examples.py runs it
        names |= SCENES.get(page, {}).get(number, dict)()
        if file := re.match(r"# (\w+\.py)\n", block.code):
            Path(file[1]).write_text(block.code, encoding="utf-8")
        exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), names)
    if page == "docs/start/loop.md":
        assert min(names["kept"]) > 0.8
        assert max(names["forgotten"][:-1]) < 0.2
    if page == "README.md":
        assert min(names["reached"]) > 0.8
    if page == "docs/own_component.md":
        sys.modules.pop("my_parts")
        assert sum(names["found"]) / 5 > 0.6
        assert CODE[page][0].code.count("\n") <= 40


def check(command: str) -> None:
    """It is there, with these options and values of these types; nothing is done."""
    words = shlex.split(command)
    if words[0] == "make":
        assert {word for word in words[1:] if "=" not in word} <= {*TARGETS}
        return
    if words[0] == "python":
        assert importlib.util.find_spec(words[2]) if words[1] == "-m" else (ROOT / words[1]).exists()
        return
    if words[0] == "pip":
        named = [word.replace(".[", "tmln[") for word in words[2:]]
        ours = [Requirement(word) for word in named if word.startswith("tmln")]
        assert {extra for one in ours for extra in one.extras} <= {*toml()["project"]["optional-dependencies"]}
        return
    if words[0] in ("apt", "curl"):  # the system's
        return
    if words[0] in ("torchrun", "srun"):  # they start what comes behind
        words = words[words.index("tmln") :]
    assert words[0] == "tmln"
    group: Any = get_command(app)
    context = group.make_context("tmln", words[1:])
    while hasattr(group, "resolve_command"):
        _, group, rest = group.resolve_command(context, context._protected_args + context.args)
        context = group.make_context(group.name, rest, parent=context)


@pytest.mark.parametrize(("page", "command"), TYPED)
def test_a_command_exists(page: str, command: str) -> None:
    check(command)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_reads_well_as_a_file(page: Path) -> None:
    """Its links lead to files that are there without a build, and code is in it; the tree of the site aside."""
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s#]+)", re.sub(r"`[^`]*`", "", FENCE.sub("", text))):
        if not re.match(r"[a-z]+:", link):
            target = (page.parent / link).resolve()
            assert target.exists(), link
            assert "made" not in target.parts, f"{link} is made: link what it is made of, FILE#made/PAGE"
    assert set(re.findall(r"^```\{(\w+)\}", text, re.MULTILINE)) <= {"toctree"}


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "start"], ids=name_of)
def test_a_start_works_from_the_checkout(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    first = re.findall(r"^\$ (.*)", text, re.MULTILINE)[0]
    assert re.match(r'pip install -e "\.\[[\w,]+\]" +# in a checkout; once released: pip install "tmln\[', first)
    if "model.onnx" in text:
        assert "export" in first


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_is_typed_stands_between_fences(page: Path) -> None:
    """Indented it would look alike, and nobody would try it."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    assert re.findall(r"^    (?:pip|tmln|make|python|torchrun|import|from) .*", text, re.MULTILINE) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "tmln lern --state x",
        "tmln learn --stat x",
        "tmln run --seeds many",
        "make tests",
        "pip install 'tmln[digit]'",
        "python -m benchmarks.none",
        "torchrun -m tmln ran",
    ],
)
def test_what_does_not_exist_is_noticed(wrong: str) -> None:
    with pytest.raises((Exception, SystemExit)):
        check(wrong)


def test_enough_is_looked_at() -> None:
    assert len(CODE) > 10
    assert len(TYPED) > 40
