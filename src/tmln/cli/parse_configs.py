"""What was typed as configurations of runs: methods times seeds, every error before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tmln.experiments.config import RunConfig


def names_in(text: str) -> list[str]:
    """``a, b`` as a list, each name once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def method_names(method: str | None, methods: str | None) -> Sequence[str | None]:
    """Of ``--method`` or ``--methods``; None is the configuration's own."""
    if method is not None and methods is not None:
        raise ValueError("give --method or --methods, not both")
    if methods is None:
        return [method]
    names = names_in(methods)
    if not names:
        raise ValueError("--methods is empty; write --methods er,tmln (tmln list methods)")
    return names


def configs_of(
    benchmark: str | None,
    methods: Sequence[str | None],
    seeds: int = 1,
    epochs: int | None = None,
    sets: list[str] | None = None,
    file: Path | None = None,
    compile: bool = False,
    parts: Mapping[str, str] | None = None,
) -> list[RunConfig]:
    """Of --benchmark, --method, --seeds, --epochs, --set, --config, --compile, and parts by name."""
    from tmln.experiments.config import RunConfig
    from tmln.methods.recipes import find_recipe
    from tmln.models.custom import check_allowed

    changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    if compile:
        changes["compile"] = True
    for text in sets or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, e.g. step.damping=0.2; got {text!r}")
        changes[key.strip()] = value.strip()
    changes |= parts or {}
    if file is None and benchmark is None:
        raise ValueError("which benchmark? --benchmark split-digits, say (tmln list benchmarks)")
    configs = []
    for method in methods:
        if method is not None:
            find_recipe(method)
        base = RunConfig.from_yaml(_text_of(file)) if file else RunConfig(benchmark=str(benchmark))
        given = {k: v for k, v in (("benchmark", benchmark), ("method", method)) if v is not None}
        base = base.with_settings({**given, **changes})
        check_allowed(base.model or "", base.model_options)
        base.recipe().check_code()
        configs += [base.with_setting("seed", base.seed + k) for k in range(seeds)]
    return configs


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is no text in UTF-8 (byte {error.start}); a configuration is YAML") from None
