"""What the hosting does is what a person can do at home: workflows, hooks and templates call commands that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.release.project import ROOT, targets, toml

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PINNED = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def read(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


JOBS = [(path.stem, name, job) for path in WORKFLOWS for name, job in read(path)["jobs"].items()]
STEPS = [(f"{file}-{name}", job, step) for file, name, job in JOBS for step in job["steps"]]


def matrix_targets(job: dict[str, Any]) -> set[str]:
    """What ``matrix.target`` stands for."""
    matrix = job.get("strategy", {}).get("matrix", {})
    return {*matrix.get("target", []), *(row["target"] for row in matrix.get("include", []))}


def commands_of(job: dict[str, Any], step: dict[str, Any]) -> list[str]:
    said = step.get("run", "")
    if "${{ matrix.target }}" in said:
        return [said.replace("${{ matrix.target }}", target) for target in sorted(matrix_targets(job))]
    return [line for line in said.splitlines() if line]


COMMANDS = [(name, command) for name, job, step in STEPS for command in commands_of(job, step)]


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_a_command_of_a_workflow_exists(name: str, command: str) -> None:
    assert "${{" not in command  # what others wrote, a tag's name say, comes in through the environment
    program, *words = command.split()
    if program == "make":
        assert {*words} <= {*targets()}
    else:
        assert (program, words[0]) == ("python", "-m")
        assert (ROOT / (words[1].replace(".", "/") + ".py")).is_file()


def test_workflows_do_what_is_asked() -> None:
    done = {command.split()[1] for _, command in COMMANDS}
    assert {"test", "test-older-cpu", "test-lowest", "lint", "docs", "dist"} <= done
    release = read(ROOT / ".github/workflows/release.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML takes "on" for true
    steps = [step.get("run") or step["uses"].split("@")[0] for step in release["jobs"]["wheels"]["steps"]]
    order = [steps.index(what) for what in ("make dist", "actions/attest-build-provenance", "actions/upload-artifact")]
    assert order == sorted(order)
    assert any(step.startswith("python -m tests.release.version") for step in steps[: order[0]])


def test_tests_are_on_every_python_that_is_promised() -> None:
    suite = read(ROOT / ".github/workflows/tests.yml")["jobs"]["suite"]
    listed = [line.rpartition(" ")[2] for line in toml()["project"]["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert suite["strategy"]["matrix"]["python"] == listed


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read(path: Path) -> None:
    """Except where wheels are signed, on a tag; and no step finds a token in the checkout."""
    assert read(path)["permissions"] == {"contents": "read"}
    for file, _, job in JOBS:
        more = {what for what, how in job.get("permissions", {}).items() if how != "read"}
        assert more == ({"id-token", "attestations"} if file == "release" else set())
        assert job["timeout-minutes"] <= 120
    checkouts = [step for _, _, step in STEPS if step.get("uses", "").startswith("actions/checkout@")]
    assert len(checkouts) == len(JOBS)
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)
    assert "secrets." not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_say_their_version(path: Path) -> None:
    used = [
        line.strip().removeprefix("- ") for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line
    ]
    assert used
    assert [line for line in used if not PINNED.fullmatch(line)] == []


def test_one_action_one_version() -> None:
    used = {step["uses"] for _, _, step in STEPS if "uses" in step}
    assert len({name.split("@")[0] for name in used}) == len(used)


def test_hooks_are_what_lint_does() -> None:
    (own,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert own["repo"] == "local"
    assert [hook["entry"] for hook in own["hooks"]] == targets()["lint"]
    assert all(hook["pass_filenames"] is False and hook["language"] == "system" for hook in own["hooks"])


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_for_the_configuration_hash(path: Path) -> None:
    form = read(path)
    assert {"name", "description", "body"} <= {*form}
    ids = [field["id"] for field in form["body"]]
    assert len({*ids}) == len(ids)
    (asked,) = [field["attributes"] for field in form["body"] if field["id"] == "run"]
    assert "configuration hash" in asked["label"]


def test_there_are_forms_and_a_private_way() -> None:
    assert [path.stem for path in FORMS] == ["bug", "result", "wish"]
    required = {
        path.stem: [f["id"] for f in read(path)["body"] if f.get("validations", {}).get("required")] for path in FORMS
    }
    assert "run" in required["bug"]
    assert "run" in required["result"]
    assert "configuration hash" in (ROOT / ".github/PULL_REQUEST_TEMPLATE.md").read_text(encoding="utf-8")
    config = read(ROOT / ".github/ISSUE_TEMPLATE/config.yml")
    (link,) = config["contact_links"]
    assert link["url"].startswith(toml()["project"]["urls"]["Repository"] + "/security/")


def test_help_is_complete() -> None:
    """Every target that a person may name has a line, and is no file."""
    explained = re.findall(r"^([a-z-]+):.*## .+$", MAKEFILE, re.M)
    assert explained == [*targets()]
    (phony,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.M)
    assert phony.split() == explained


def test_skips_are_told() -> None:
    assert all("-rs" in line for name in ("test", "test-lowest", "test-older-cpu") for line in targets()[name][-1:])


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"])
def test_a_paper_is_there(name: str) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").split()) > 150
