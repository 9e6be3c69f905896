"""``python -m tests.golden`` keeps the curves as they are now; do that only when a change of numbers was meant."""

from __future__ import annotations

from tests.golden.curves import write

write()
