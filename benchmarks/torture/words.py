"""Type any `--set` and any configuration file: it is taken, or refused in one line that says what is wrong.

`tmln run` is called whole, in this process, but for the work itself; of what it takes, stream and model are built.
"""

from __future__ import annotations

import io
import re
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from benchmarks.torture.reached import COMMANDS, FAMILIES, RECIPES, RunConfig, build, command_line, module
from benchmarks.torture.scene import SMALL, Scene
from benchmarks.torture.verdict import Verdict, lost, unclear
from benchmarks.torture.warm import Tell, call

MEMORY = 8 << 30  # bytes of address space for whatever a configuration asks for
DIRECT = [name for name in RunConfig.model_fields if not name.endswith("options") and name != "settings"]
OPTIONS = ["tasks", "per_class", "per_class_test", "blurry", "repeats", "seed", "root", "skip_bad", "class_order"]
OTHERS = [*(f"benchmark.{name}" for name in OPTIONS), "model.hidden", "settings", "benchmark_options", "model.depth"]
NAMES = [
    *RECIPES,
    *(name for parts in FAMILIES.values() for name in parts),
    "mlp",
    "cnn",
    "resnet18",
    "os:system",
    "timm:x",
]


def keys_of(method: str) -> list[str]:
    """What can be set of it."""
    parts = {family: RECIPES[method].resolve(family)[0] for family in FAMILIES}
    return [
        *DIRECT,
        *OTHERS,
        *(f"{family}.{name}" for family, part in parts.items() for name in part.Settings.model_fields),
    ]


# What Python and torch say to programmers.
RAW = (
    "codec can't",
    "object has no attribute",
    "out of range",
    "NoneType",
    "keyword argument",
    "positional argument",
    "not supported between",
    "object is not",
    "frame #",
    "<class",
    "unhashable",
)

# A command line is bytes: what is no UTF-8 arrives as half a surrogate pair.
letters = st.characters() | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF)
numbers = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([2**31, 2**63, -(2**63), 10**18, 10**400]),
    st.floats(),
    st.floats(0, 2),
)
plain = st.none() | st.booleans() | numbers | st.sampled_from(NAMES) | st.text(letters, max_size=8)
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
written = st.one_of(
    values.map(str),
    st.sampled_from(NAMES),
    st.text(letters, max_size=30),
    st.sampled_from(
        ["", "!!timestamp x", "&a [*a]", "{a: b", "1e999", "0x1F", "1_000", "~", "- - -", "%", "'", "a: b", "\\", "?"]
    ),
)
likely = numbers | st.booleans() | st.sampled_from(NAMES)  # what a setting may well take


@st.composite
def one_set(draw: st.DrawFn) -> tuple[str, str]:
    """Return a method, and mostly KEY=VALUE with a key that it has, at times any text."""
    method, kind = draw(st.sampled_from(list(RECIPES))), draw(st.integers(0, 9))
    if kind == 0:
        return method, draw(st.text(letters, max_size=40))
    key = draw(st.text(letters, max_size=12)) if kind == 1 else draw(st.sampled_from(keys_of(method)))
    return method, f"{key}={draw(written if kind < 5 else likely.map(str))}"


@st.composite
def one_file(draw: st.DrawFn) -> bytes:
    """Return a sound configuration with up to three changes, another mapping, or any bytes."""
    method, kind = draw(st.sampled_from(list(RECIPES))), draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.binary(max_size=80))
    if kind == 1:
        return draw(st.text(max_size=80)).encode("utf-8", "replace")
    keys = st.sampled_from(keys_of(method)) if kind > 3 else st.text(max_size=12)
    changed = draw(st.dictionaries(keys, likely if kind > 5 else values, min_size=1, max_size=3))
    content = {**({**SMALL, "method": method} if kind > 2 else {}), **changed}
    try:
        return yaml.safe_dump(content, allow_unicode=True).encode("utf-8", "surrogateescape")
    except (yaml.YAMLError, ValueError):
        return repr(content).encode("utf-8", "replace")


@dataclass(frozen=True)
class Said:
    code: int
    errors: str


def typed(words: list[str]) -> Said:
    """Run `tmln` with these words in this process; return a traceback as a person would see it."""
    out, err = (
        io.TextIOWrapper(io.BytesIO(), "utf-8"),
        io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace"),
    )
    code, sys.argv = 0, ["tmln", *words]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            command_line()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            traceback.print_exc(file=err)
            code = 1
        err.flush()
    return Said(code, err.buffer.getvalue().decode("utf-8", "replace"))


def fault_of(said: Said) -> str:
    """What is wrong with an answer: nothing, if it was taken, or refused in one line of its own words."""
    lines = [line for line in said.errors.splitlines() if line and not line.startswith("warning: ")]
    if said.code == 0 and not lines:
        return ""
    if said.code != 2 or len(lines) != 1 or not lines[0].startswith("tmln: ") or len(lines[0]) < len("tmln: ") + 8:
        return f"exit code {said.code}: {' / '.join(lines[-4:])[-300:]}"
    own = re.sub(r"not '[^']*'", "", lines[0])  # what was typed may be anything
    return f"raw: {lines[0][:300]}" if any(raw in own for raw in RAW) else ""


def tried(strategy: st.SearchStrategy[Any], words: Callable[[Any], list[str]], count: int, number: int) -> Verdict:
    found: list[Verdict] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def one(text: Any) -> None:
        wrong = fault_of(typed(words(text)))
        found.append(Verdict(1) + (unclear(f"{text!r}: {wrong}") if wrong else Verdict()))

    one()
    return sum(found, Verdict())


def _bounded() -> None:
    """Do only the beginning of the work: the stream, the model and the components."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def built(configs: list[RunConfig], *rest: object, **terms: object) -> None:
        for config in configs:
            build(config)

    vars(module(COMMANDS))["run_configs"] = built


def sets(tell: Tell, count: int, number: int) -> Verdict:
    _bounded()
    base = ["run", "--benchmark", "split-digits", "--method"]
    return tried(one_set(), lambda drawn: [*base, drawn[0], f"--set={drawn[1]}"], count, number)


def files(tell: Tell, count: int, number: int) -> Verdict:
    _bounded()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"

        def words(data: bytes) -> list[str]:
            file.write_bytes(data)
            return ["run", "--config", str(file)]

        return tried(one_file(), words, count, number)


def _trial(function: Callable[..., Verdict], scene: Scene, index: int, each: int) -> Verdict:
    ended = call(function, each, 1000 * scene.seed + index)
    if isinstance(ended.value, Verdict):
        return ended.value
    return lost(f"fuzzed words, part {index}: {ended.code} {ended.said[-500:]}")


def strings(scene: Scene, index: int, each: int) -> Verdict:
    return _trial(sets, scene, index, each)


def configurations(scene: Scene, index: int, each: int) -> Verdict:
    return _trial(files, scene, index, each)
