"""Record golden numbers anew, for when a change of numbers was intended.

``python -m tests.golden`` replaces all curves by those of this CPU, ``python -m tests.golden here`` only this CPU's.
``python -m tests.golden fingerprints [RECIPE ...]`` records the fingerprints of recipes, all by default, for this CPU.
``python -m tests.golden state`` records what a state file of a new version holds, and writes its fixture.
"""

from __future__ import annotations

import sys

from tests.golden import states
from tests.golden.curves import write
from tests.golden.fingerprints import record
from tmln.methods.recipes import RECIPES

if sys.argv[1:2] == ["fingerprints"]:
    record(sys.argv[2:] or list(RECIPES))
elif sys.argv[1:2] == ["state"]:
    states.record()
else:
    write(anew=sys.argv[1:] != ["here"])
