"""No replay, the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tmln.methods import Guide, Replay, Settings


class NoReplay(Replay[Settings]):
    """No replay; the loss is the mean cross entropy of the batch."""

    name = "none"
    supports_fsdp = True
    off_settings: ClassVar[Mapping[str, Any] | None] = {}
    fixed_memory_terms = ()
    guide = Guide(
        equation=r"\mathcal{L} = \frac{1}{n} \sum_{i=1}^{n} \mathrm{CE}(f(x_i), y_i)",
        origin="",
        cost="Nothing.",
        use="As a baseline; where no sample may be stored; where a penalty or a step is to protect alone.",
        avoid="When classes arrive one after another at one head: most methods without a memory then "
        "predict the last task's classes.",
    )
