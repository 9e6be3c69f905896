"""Configurations: the same run however it is spelled, another run for anything that matters, errors of one line."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tmln.experiments.config import RunConfig, canonical, run_id
from tmln.experiments.yaml_reader import read_value
from tmln.methods.recipes import RECIPES
from tmln.models import make_model
from tmln.streams import BENCHMARKS, make_stream

DIGITS = RunConfig(benchmark="split-digits")


@pytest.mark.parametrize(
    ("benchmark", "same", "other"),
    [
        ("split-cifar10", "paper", "none"),
        ("split-tiny-imagenet", "crop-flip", "paper"),
        ("split-mnist", "none", "paper"),
    ],
)
def test_an_augmentation_by_its_name_is_the_same_run(benchmark: str, same: str, other: str) -> None:
    plain = RunConfig(benchmark=benchmark)
    assert not {"augment", "normalise"} & plain.resolved()["benchmark_options"].keys()  # as in earlier versions
    for value in ("auto", same):
        assert run_id(plain.with_setting("benchmark.augment", value)) == run_id(plain)
    changed = plain.with_setting("benchmark.augment", other)
    assert run_id(changed) != run_id(plain)
    assert run_id(RunConfig.from_yaml(changed.to_yaml())) == run_id(changed)
    assert run_id(plain.with_setting("benchmark.normalise", "false")) != run_id(plain)


def test_the_size_of_pictures_is_in_a_name_where_it_is_not_the_first_one() -> None:
    plain = RunConfig(benchmark="pacs")
    assert "size" not in plain.resolved()["benchmark_options"]
    assert run_id(plain.with_setting("benchmark.size", 64)) == run_id(plain)
    assert run_id(plain.with_setting("benchmark.size", 224)) != run_id(plain)
    core50 = RunConfig(benchmark="core50").with_setting("benchmark.size", 64)
    assert core50.resolved()["benchmark_options"]["size"] == 64  # there 224 is usual


def test_tasks_by_their_classes_are_one_run_however_they_are_written() -> None:
    assert not {"first", "task_classes"} & DIGITS.resolved()["benchmark_options"].keys()
    text = DIGITS.with_setting("benchmark.task_classes", "0,1/2,3/4")
    assert text.resolved()["benchmark_options"]["task_classes"] == [[0, 1], [2, 3], [4]]
    assert text.resolved()["benchmark_options"]["tasks"] == 3
    lists = DIGITS.with_setting("benchmark.task_classes", [[0, 1], [2, 3], [4]])
    assert run_id(text) == run_id(lists) == run_id(RunConfig.from_yaml(text.to_yaml()))
    assert run_id(text) != run_id(DIGITS.with_setting("benchmark.tasks", 3))
    larger = DIGITS.with_settings({"benchmark.first": 4, "benchmark.tasks": 3})
    assert run_id(larger) != run_id(DIGITS.with_setting("benchmark.tasks", 3))


def test_depth_and_dropout_are_in_a_name_where_they_are_used() -> None:
    assert DIGITS.resolved()["model_options"] == {"hidden": 128}
    assert run_id(DIGITS.with_settings({"model.depth": 1, "model.dropout": 0})) == run_id(DIGITS)
    changed = DIGITS.with_settings({"model.depth": 2, "model.dropout": 0.5})
    assert changed.resolved()["model_options"] == {"depth": 2, "dropout": 0.5, "hidden": 128}
    assert run_id(RunConfig.from_yaml(changed.to_yaml())) == run_id(changed) != run_id(DIGITS)
    with pytest.raises(ValueError, match="unknown option 'drop' of model mlp; did you mean 'dropout'"):
        DIGITS.with_setting("model.drop", 0.5)


def test_the_augmentation_of_a_folder_stays_in_its_name() -> None:
    folder = RunConfig(benchmark="folder:pictures")
    assert folder.resolved()["benchmark_options"]["augment"] == "none"


def test_resolved_by_hand() -> None:
    config = RunConfig(benchmark="split-digits", method="naive", seed=3)
    assert config.resolved() == {
        "batch_size": 32,
        "benchmark": "split-digits",
        "benchmark_options": {
            "blurry": 0.0,
            "class_order": "ascending",
            "per_class": None,
            "per_class_test": None,
            "repeats": 1,
            "seed": 0,
            "skip_bad": False,
            "tasks": 5,
        },
        "epochs": 10,
        "logit_mask": "none",
        "lr": 0.01,
        "merged": False,
        "compile": False,
        "method": "naive",
        "model": "mlp",
        "model_options": {"hidden": 128},
        "penalty": "none",
        "replay": "none",
        "seed": 3,
        "settings": {"step.momentum": 0.9, "step.reset": True, "step.weight_decay": 0.0},
        "step": "sgd",
    }


def keys_are_sorted(value: Any) -> bool:
    if isinstance(value, dict):
        return list(value) == sorted(value) and all(keys_are_sorted(item) for item in value.values())
    return True


@pytest.mark.parametrize("method", RECIPES)
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_every_benchmark_and_method_resolves_to_itself(benchmark: str, method: str) -> None:
    name = {"folder": "folder:photos", "own": "own:memory"}.get(benchmark, benchmark)
    options = {"fingerprint": "0123456789abcdef"} if benchmark == "own" else {}
    config = RunConfig(benchmark=name, method=method, benchmark_options=options)
    complete = config.resolved()
    assert keys_are_sorted(complete)
    assert json.loads(json.dumps(complete)) == complete
    again = RunConfig.of(complete)
    assert again.resolved() == complete
    assert run_id(again) == run_id(config)
    assert run_id(RunConfig.from_yaml(config.to_yaml())) == run_id(config)


def test_the_table_covers_the_benchmarks_and_tells_their_tasks() -> None:
    for name in ("split-digits", "rotated-digits"):
        assert len(make_stream(name)) == BENCHMARKS[name].tasks
    for row in BENCHMARKS.values():  # the others say in words what they build
        assert row.tasks is None or f" {row.tasks} " in row.summary, row.summary


def test_defaults_are_the_agreed_ones() -> None:
    found = {name: (row.model, row.epochs, row.batch_size, row.lr) for name, row in BENCHMARKS.items()}
    assert found["split-digits"] == found["rotated-digits"] == ("mlp", 10, 32, 0.01)
    for name in ("split-mnist", "permuted-mnist", "rotated-mnist", "split-fashion-mnist"):
        assert found[name] == ("mlp", 5, 128, 0.01)
    assert found["split-cifar10"] == ("resnet18", 20, 128, 0.01)
    assert found["split-cifar100"] == found["split-tiny-imagenet"] == ("resnet18", 50, 128, 0.01)
    assert found["core50"] == ("mobilenetv2", 20, 128, 0.01)
    assert found["folder"] == ("resnet18-slim", 10, 128, 0.01)
    assert RunConfig(benchmark="split-cifar100").resolved()["model_options"] == {"width": 64}


# -- identity ----------------------------------------------------------------------------------------------------------

NAMED: list[tuple[str, str, dict[str, Any], str]] = [
    ("split-digits", "tmln", {}, "9f27b05303e3a3c6"),
    (
        "split-digits",
        "er",
        {"tasks": 4, "per_class": 7, "blurry": 0.25, "skip_bad": True, "seed": "3"},
        "0e1de7c62b97e71d",
    ),
    ("split-digits", "er", {"class_order": "1,0,2"}, "a7dffe9539218c9d"),
    ("permuted-mnist", "joint", {}, "6f9ae5ec416ca781"),
    ("split-cifar100", "tmln", {}, "055f66f8c049a8b6"),
    ("split-tiny-imagenet", "er", {}, "dee07f7134c3f9b7"),
    ("core50", "tmln", {}, "d992b63bd7edf265"),
    ("core50", "er", {"size": "32", "memory_limit": 5}, "f28963b7446464e5"),
    (
        "core50",
        "er",
        {"session_order": "seed:4", "holdout": "random", "holdout_fraction": ".5", "test_resize": 300},
        "678fd69b6cefa92f",
    ),
    (
        "folder:/photos",
        "er",
        {"layout": "tasks", "mode": "L", "augment": "shift-flip", "test_fraction": 0.1},
        "012c8259b340b320",
    ),
]


@pytest.mark.parametrize(("benchmark", "method", "options", "digits"), NAMED)
def test_runs_keep_the_names_they_had(benchmark: str, method: str, options: dict[str, Any], digits: str) -> None:
    """Taken before options were declared in the rows of benchmarks: what was computed then is found."""
    name = run_id(RunConfig(benchmark=benchmark, method=method, benchmark_options=options))
    assert name == f"{benchmark.partition(':')[0]}-{method}-s0-{digits}"


SPELLINGS: list[dict[str, Any]] = [
    {"method": "tmln"},
    {"replay": "er", "penalty": "none", "step": "tmln"},
    {"settings": {"step.damping": 0.1}},
    {"settings": {"step": {"damping": "0.1", "trajectory": 1}}},
    {"settings": {"step.trajectory": 1.0, "replay.capacity": 500, "replay.batch": None}},
    {"lr": 1e-2, "epochs": 10, "batch_size": 32, "model": "mlp"},
    {"model_options": {"hidden": 128}},
    {"model_options": {"hidden": "128"}},
    {"benchmark_options": {"tasks": 5, "seed": 0, "blurry": 0, "class_order": "ascending"}},
    {"benchmark_options": {"root": "some/where"}},
    {"seed": 0, "logit_mask": "none"},
]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_a_default_spelled_out_is_the_same_run(spelling: dict[str, Any]) -> None:
    assert run_id(RunConfig(benchmark="split-digits", **spelling)) == run_id(DIGITS)


CHANGES: list[dict[str, Any]] = [
    {"method": "er"},
    {"settings": {"step.damping": 0.2}},
    {"settings": {"step.trajectory": 1.0000001}},
    {"replay": "none"},
    {"seed": 1},
    {"lr": 0.02},
    {"epochs": 11},
    {"batch_size": 33},
    {"logit_mask": "seen"},
    {"merged": True},
    {"model": "cnn"},
    {"model_options": {"hidden": [128, 128]}},
    {"benchmark_options": {"tasks": 2}},
    {"benchmark_options": {"seed": 1}},
    {"benchmark_options": {"class_order": "9,8,7,6,5,4,3,2,1,0"}},
]


def test_whatever_matters_makes_another_run() -> None:
    names = [run_id(RunConfig(benchmark="split-digits", **change)) for change in CHANGES]
    assert len({*names, run_id(DIGITS)}) == len(CHANGES) + 1


def test_an_option_that_came_later_is_part_of_a_run_only_where_it_changes_something() -> None:
    for off in (0, 0.0, "0"):
        config = DIGITS.with_setting("benchmark.validation", off)
        assert "validation" not in config.resolved()["benchmark_options"]
        assert run_id(config) == run_id(DIGITS)
    on = DIGITS.with_setting("benchmark.validation", "0.1")
    assert on.resolved()["benchmark_options"]["validation"] == 0.1
    assert run_id(RunConfig.from_yaml(on.to_yaml())) == run_id(on) != run_id(DIGITS)
    for wrong in (1, -0.1):
        with pytest.raises(ValueError, match="'validation' of split-digits is a number >= 0 and < 1"):
            DIGITS.with_setting("benchmark.validation", wrong)


def test_names_are_readable() -> None:
    assert run_id(DIGITS).rpartition("-")[0] == "split-digits-tmln-s0"
    assert len(run_id(DIGITS).rpartition("-")[2]) == 16
    name = run_id(RunConfig(benchmark="folder:My Photos", method="ewc++", seed=12))
    assert name.startswith("folder-ewc++-s12-")
    assert canonical({"b": [1.0, 0.1, True, None], "a": "x"}) == '{"a":"x","b":[1,0.1,true,null]}'


def test_class_orders_and_folders_are_one_however_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[Any] = ["9,8,7,6,5,4,3,2,1,0", list(range(9, -1, -1))]
    assert len({run_id(DIGITS.with_setting("benchmark.class_order", order)) for order in orders}) == 1
    monkeypatch.chdir(tmp_path)
    folders = ["folder:photos", "folder:./photos", f"folder:{tmp_path}/photos"]
    assert len({run_id(RunConfig(benchmark=name)) for name in folders}) == 1


@given(st.one_of(st.integers(-(2**40), 2**40), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_number_has_one_text(number: float) -> None:
    assert canonical(number) == canonical(float(number)) == canonical(float(repr(number)))


@settings(max_examples=25, deadline=None)
@given(
    method=st.sampled_from(sorted(RECIPES)),
    damping=st.floats(1e-6, 10),
    epochs=st.integers(1, 100),
    seed=st.integers(0, 2**32),
)
def test_yaml_and_back(method: str, damping: float, epochs: int, seed: int) -> None:
    config = RunConfig.of(
        {"benchmark": "split-digits", "method": method, "step": "tmln", "epochs": epochs, "seed": seed}
    )
    config = config.with_setting("step.damping", damping)
    assert RunConfig.from_yaml(config.to_yaml()).resolved() == config.resolved()


# -- changes and errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "place", "value"),
    [
        ("epochs", "3", ("epochs",), 3),
        ("lr", "1e-3", ("lr",), 0.001),
        ("step", "sgd", ("step",), "sgd"),
        ("step.damping", "2e-1", ("settings", "step.damping"), 0.2),
        ("replay.batch", "null", ("settings", "replay.batch"), None),
        ("replay.batch", "16", ("settings", "replay.batch"), 16),
        ("benchmark.tasks", "2", ("benchmark_options", "tasks"), 2),
        ("benchmark.skip_bad", "true", ("benchmark_options", "skip_bad"), True),
        ("model.hidden", "[64, 32]", ("model_options", "hidden"), [64, 32]),
        ("model", "cnn", ("model",), "cnn"),
        ("method", "er", ("method",), "er"),
        ("logit_mask", "seen", ("logit_mask",), "seen"),
    ],
)
def test_settings_from_a_command_line(key: str, text: str, place: tuple[str, ...], value: object) -> None:
    found = DIGITS.with_setting(key, text).resolved()
    for name in place:
        found = found[name]
    assert found == value
    assert RunConfig(benchmark="split-digits") == DIGITS, "the old one is as it was"


def test_text_that_looks_like_a_number_can_be_a_name() -> None:
    options = RunConfig(benchmark="folder:x").with_setting("benchmark.path", "2024").resolved()["benchmark_options"]
    assert Path(options["path"]).name == "2024"


def test_several_settings_in_any_order() -> None:
    config = DIGITS.with_settings({"penalty.damping": "0.5", "penalty": "si"})
    assert config.resolved()["settings"]["penalty.damping"] == 0.5
    text = "step.weight_decay: 1e-4\nbenchmark: split-digits\nstep: sgd\nsettings:\n  step: {momentum: 0.5}\n"
    found = RunConfig.from_yaml(text).resolved()["settings"]
    assert (found["step.weight_decay"], found["step.momentum"]) == (1e-4, 0.5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-2", -2), ("1.0", 1.0), ("1e0", 1.0), (".5", 0.5), ("+3", 3), ("true", True), ("~", None),
        ("a,b", "a,b"), ("[1, x]", [1, "x"]), ("nan", "nan"), ("[", "["), ("10000000000000001", 10**16 + 1),
    ],
)  # fmt: skip
def test_values_are_read_as_meant(text: str, value: object) -> None:
    found = read_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("epoch", 3, r"unknown setting 'epoch'; did you mean 'epochs'\? \(settings: benchmark, "),
        ("damping", 1, r"unknown setting 'damping'; did you mean 'step\.damping'\?"),
        ("per_class", 1, r"unknown setting 'per_class'; did you mean 'benchmark\.per_class'\?"),
        (
            "size",
            32,
            r"unknown setting 'size'; that is an option of split-cub200, core50, pacs, folder, own; split-digits has",
        ),
        ("stp.damping", 1, r"unknown setting 'stp\.damping'; did you mean 'step\.damping'\?"),
        ("step.dampin", 1, r"^step\.dampin: 'tmln' has no setting 'dampin'; did you mean 'damping'\?"),
        ("step.damping", -1, r"step\.damping = -1: .* greater than 0"),
        ("step.damping", "much", r"step\.damping = 'much'"),
        ("epochs", 0, r"^epochs = 0: .* greater than or equal to 1$"),
        ("epochs", "many", r"^epochs = 'many': "),
        ("lr", 0, r"^lr = 0: "),
        ("lr", ".inf", r"^lr = inf: "),
        ("seed", -1, r"^seed = -1: "),
        ("logit_mask", "sen", r"^logit_mask = 'sen': "),
        ("method", "tlmn", r"unknown method 'tlmn'; did you mean 'tmln'\?"),
        ("model", "mpl", r"unknown model 'mpl'; did you mean 'mlp'\?"),
        ("model.hiden", 3, r"unknown option 'hiden' of model mlp; did you mean 'hidden'\?"),
        ("model.hidden", "wide", r"option 'hidden' of model mlp = 'wide'"),
        ("benchmark.root", [1], r"option 'root' of split-digits is a folder, not \[1\]"),
        ("model.hidden", 10**30, r"option 'hidden' of model mlp = 10+: more than 2,147,483,647 is"),
        ("model.hidden", [8, 2**31], r"option 'hidden' of model mlp = \[8, 2147483648\]: more than"),
        ("benchmark", "split-digit", r"unknown benchmark 'split-digit'; did you mean 'split-digits'\?"),
        ("benchmark.task", 3, r"unknown option 'task' of split-digits; did you mean 'tasks'\?"),
        ("benchmark.tasks", 0, r"option 'tasks' of split-digits is a whole number >= 1, not 0"),
        ("replay", "err", r"unknown replay 'err'; did you mean 'er'\?"),
        ("settings", {}, r"unknown setting 'settings'"),
    ],
)
def test_errors_are_one_line_with_a_remedy(key: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        DIGITS.with_setting(key, value)
    assert not isinstance(error.value, ValidationError)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("benchmark: [", "not YAML: "),
        ("- 1", r"a YAML mapping such as 'benchmark: split-digits', not \[1\]"),
        ("", "a YAML mapping"),
        ("method: er", r"^benchmark = .*Field required"),
        ("benchmark: split-digits\nepoch: 3", "unknown setting 'epoch'; did you mean 'epochs'"),
        ("benchmark: split-digits\nper_class: 3", "unknown setting 'per_class'; did you mean 'benchmark.per_class'"),
        ("benchmark: folder", "folder:PATH"),
        ("!!python/object/apply:os.mkdir [sprung]", "line 1 has a tag"),
    ],
)
def test_bad_yaml_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        RunConfig.from_yaml(text)
    assert "\n" not in str(error.value)


def test_a_configuration_is_frozen_and_closed() -> None:
    with pytest.raises(ValidationError):
        DIGITS.seed = 3
    with pytest.raises(ValidationError):
        RunConfig(benchmark="split-digits", colour="red")  # type: ignore[call-arg]


def test_models_of_users_keep_the_options_given() -> None:
    config = RunConfig(benchmark="split-digits", model="my.module:build", model_options={"depth": 3})
    assert config.resolved()["model_options"] == {"depth": 3}


def test_resolved_options_build_the_model_and_the_stream() -> None:
    complete = RunConfig(benchmark="split-digits", model_options={"hidden": [8]}).resolved()
    stream = make_stream(complete["benchmark"], **complete["benchmark_options"])
    make_model(complete["model"], stream.shape, stream.classes, **complete["model_options"])
    assert yaml.safe_load(RunConfig.of(complete).to_yaml()) == complete


def test_what_was_worked_out_is_nobody_elses() -> None:
    config = RunConfig(benchmark="split-digits", method="tmln")
    untouched = RunConfig(benchmark="split-digits", method="tmln")
    config.resolved()["settings"]["step.damping"] = 7.0  # a copy
    assert config.resolved() == untouched.resolved()
    assert config == untouched
    assert config.model_copy(update={"seed": 3}).resolved()["seed"] == 3
    assert pickle.loads(pickle.dumps(config)) == config
