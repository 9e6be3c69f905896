"""Experience replay (Rolnick et al. 2019; Chaudhry et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tmln.methods import Guide
from tmln.methods.replay.memory_replay import MemoryReplay, MemorySettings


class ER(MemoryReplay[MemorySettings]):
    """Mean cross entropy over current and replayed samples together."""

    name = "er"
    supports_fsdp = True
    Settings = MemorySettings
    off_settings: ClassVar[Mapping[str, Any] | None] = {"batch": 0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"batch": 3}
    guide = Guide(
        equation=r"\mathcal{L} = \frac{1}{n+m} \left( \sum_{i \in \text{batch}} \mathrm{CE}(f(x_i), y_i) + "
        r"\sum_{j \in \text{memory}} \mathrm{CE}(f(x_j), y_j) \right)",
        origin="Rolnick et al. 2019; Chaudhry et al. 2019. The reservoir: Vitter 1985, algorithm R.",
        cost="Twice the samples in every step (unless `replay.batch` is set), and the memory.",
        use="First: it is the simplest rule that works with many classes at one head, and with any step.",
        avoid="Where no sample may be stored; where all data fit into the memory, so that joint training is possible.",
    )
