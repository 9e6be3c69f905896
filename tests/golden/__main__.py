"""``python -m tests.golden`` keeps the curves as they are now, and no others; for when a change of numbers was meant.

``python -m tests.golden here`` keeps the others, too: those of CPUs with other instructions.
"""

from __future__ import annotations

import sys

from tests.golden.curves import write

write(anew=sys.argv[1:] != ["here"])
