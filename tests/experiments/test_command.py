"""The command that makes a run again: parsed as a shell and the CLI would, it is the same run."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st

from tmln.cli.options import parse_configs, split_row_names
from tmln.experiments.command import changed_of, command_of, commands_of
from tmln.experiments.config import RunConfig, run_id
from tmln.methods.recipes import RECIPES

DIGITS: dict[str, Any] = {"benchmark": "split-digits"}


def parsed(command: str) -> list[RunConfig]:
    """What ``tmln run`` makes of the words."""
    words = shlex.split(command)
    assert words[:2] == ["tmln", "run"]
    options: dict[str, Any] = {"sets": [], "compile": False, "epochs": None}
    rest = iter(words[2:])
    for word in rest:
        if word == "--compile":
            options["compile"] = True
        elif word == "--set":
            options["sets"].append(next(rest))
        else:
            options[word.removeprefix("--")] = next(rest)
    epochs = None if options["epochs"] is None else int(options["epochs"])
    return parse_configs(
        options["benchmark"],
        [options["method"]],
        int(options["seeds"]),
        epochs,
        options["sets"],
        None,
        options["compile"],
    )


@pytest.mark.parametrize("method", list(RECIPES))
def test_defaults_need_no_settings(method: str) -> None:
    config = RunConfig(**DIGITS, method=method)
    assert command_of(config) == f"tmln run --benchmark split-digits --method {method} --seeds 1"
    assert run_id(parsed(command_of(config))[0]) == run_id(config)


def test_a_name_and_own_code_are_in_the_command() -> None:
    named = RunConfig(**DIGITS, method="er", name="my method")
    assert command_of(named) == "tmln run --benchmark split-digits --method er --seeds 1 --name 'my method'"
    full = {**RunConfig(**DIGITS, method="er").resolved(), "replay": "a.b:Mine"}
    (command,) = commands_of(full, ["replay"], [0])
    assert command.endswith("--set replay=a.b:Mine --allow-code")
    assert "--allow-code" not in commands_of({**full, "replay": "er", "model": "timm:resnet10t"}, ["model"], [0])[0]


def test_a_name_changes_the_hash_of_its_run_and_no_other() -> None:
    plain = RunConfig(**DIGITS, method="er")
    assert "name" not in plain.resolved()
    assert run_id(plain.with_setting("name", "mine")) != run_id(plain)
    assert RunConfig.from_yaml(plain.with_setting("name", "mine").to_yaml()).name == "mine"


def test_a_setting_applies_to_the_methods_that_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = parse_configs("split-digits", ["naive", "er"], sets=["replay.capacity=50", "epochs=2"])
    assert [(one.method, one.settings, one.epochs) for one in found] == [
        ("naive", {}, 2),
        ("er", {"replay.capacity": 50}, 2),
    ]
    assert capsys.readouterr().err == "naive: run without replay.capacity (replay 'none' has no capacity)\n"
    with pytest.raises(ValueError, match="'none' has no setting 'capacity'"):
        parse_configs("split-digits", ["naive"], sets=["replay.capacity=50"])
    with pytest.raises(ValueError, match="did you mean 'capacity'"):
        parse_configs("split-digits", ["er", "tmln"], sets=["replay.capacty=50"])
    (first, second) = parse_configs("split-digits", ["er", "naive"], sets=["replay=er", "replay.capacity=50"])
    assert first.settings == second.settings == {"replay.capacity": 50}


def test_rows_are_named_one_for_each_method() -> None:
    assert split_row_names("a,b", ["er", "tmln"]) == ["a", "b"]
    assert split_row_names(None, ["er", "tmln"]) == [None, None]
    with pytest.raises(ValueError, match=r"1 name for 2 methods; give one for each"):
        split_row_names("a", ["er", "tmln"])
    assert [one.name for one in parse_configs("split-digits", ["er", "tmln"], names=["a", "b"])] == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({**DIGITS, "method": "er", "settings": {"replay.capacity": 50}}, "--set replay.capacity=50"),
        ({**DIGITS, "method": "tmln", "settings": {"step.eps": 1e-9}}, "--set step.eps=1e-09"),
        ({**DIGITS, "method": "ewc++", "settings": {"penalty.strength": 123.5}}, "--set penalty.strength=123.5"),
        ({**DIGITS, "method": "tmln", "replay": "der++", "settings": {"replay.alpha": 0.3}}, "--set replay=der++"),
        ({**DIGITS, "method": "er", "settings": {"step.momentum": 0.0}, "seed": 7}, "--set seed=7"),
        ({**DIGITS, "method": "naive", "epochs": 3, "compile": True}, "--compile --epochs 3"),
        ({**DIGITS, "method": "naive", "train_accuracy": True}, "--set train_accuracy=true"),
        ({**DIGITS, "method": "naive", "merged": True}, "--set merged=true"),
        ({**DIGITS, "benchmark_options": {"tasks": 2, "class_order": "random"}}, "--set benchmark.class_order=random"),
        ({**DIGITS, "benchmark_options": {"class_order": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]}}, "benchmark.class_order"),
        ({**DIGITS, "model": "mlp", "model_options": {"hidden": 32}}, "--set model.hidden=32"),
        ({"benchmark": "split-mnist", "model": "cnn", "lr": 0.5, "batch_size": 7}, "--set model=cnn"),
        ({"benchmark": "folder:/data/my photos; rm -rf $HOME"}, "'folder:/data/my photos; rm -rf $HOME'"),
        ({"benchmark": "folder", "benchmark_options": {"path": "/data/it's"}}, "folder:/data/it"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value,
)
def test_what_differs_is_said_and_read_again(values: dict[str, Any], words: str) -> None:
    config = RunConfig.of(values)
    command = command_of(config)
    assert words in command
    assert run_id(parsed(command)[0]) == run_id(config)
    assert command_of(RunConfig.of(config.resolved())) == command  # also from a result's resolved configuration


@how(deadline=None)
@given(
    damping=st.floats(1e-6, 1e6),
    trajectory=st.floats(0, 1e3),
    form=st.sampled_from(["scaled", "proximal"]),
    capacity=st.integers(1, 10**6),
    lr=st.floats(1e-8, 10),
    seed=st.integers(0, 2**40),
)
def test_any_numbers_survive(damping: float, trajectory: float, form: str, capacity: int, lr: float, seed: int) -> None:
    settings = {"step.damping": damping, "step.trajectory": trajectory, "step.form": form, "replay.capacity": capacity}
    config = RunConfig.of({**DIGITS, "method": "tmln", "settings": settings, "lr": lr, "seed": seed})
    assert run_id(parsed(command_of(config))[0]) == run_id(config)


def test_stretches_of_seeds() -> None:
    config = RunConfig(**DIGITS, method="er", seed=5)
    commands = commands_of(config.resolved(), changed_of(config), [3, 0, 1, 4, 9])
    assert commands == [
        "tmln run --benchmark split-digits --method er --seeds 2",
        "tmln run --benchmark split-digits --method er --seeds 2 --set seed=3",
        "tmln run --benchmark split-digits --method er --seeds 1 --set seed=9",
    ]
    assert [one.seed for command in commands for one in parsed(command)] == [0, 1, 3, 4, 9]
