"""Results that were never run: no matrix, and the metrics that one wants said as earlier versions said them."""

from __future__ import annotations

from typing import Any

from tmln.experiments.result import Result


def result(method: str, seed: int, acc: float, fm: float = 0.2, **more: Any) -> Result:
    """``metrics`` are further ones; ``settings`` and ``lr`` are as configured."""
    config: dict[str, Any] = {"method": method, "seed": seed, "settings": more.pop("settings", {})}
    if "lr" in more:
        config["lr"] = more.pop("lr")
    said = {"acc": acc, "fm": fm, **more.pop("metrics", {})}
    benchmark = more.pop("benchmark", "split-digits")
    return Result(benchmark, method, seed, config, **{"said": said, "seconds": 1.0, **more})
