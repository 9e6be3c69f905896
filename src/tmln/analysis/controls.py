"""A method once more at the rate that another has, ``naive at eta/lambda``: one of its own, not the best of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tmln.analysis.rows import Row

MOMENTUM = "settings.step.momentum"
AT_RATE = " at eta/lambda"


def with_controls(rows: Sequence[Row]) -> list[Row]:
    """The rows of one table, where ``naive lr=0.1 step.momentum=0.0`` beside a plain naive is ``naive at eta/lambda``.

    It is so if it differs from the only other row of its method in the rate and in having no momentum, and if its rate
    is one at which another method starts though its lr is not (TMLN's eta/lambda). One of more settings is of a search.
    """
    rates = {row.rate for row in rows if row.competes and not math.isnan(row.rate) and row.rate != row.lr}
    named: dict[str, tuple[str, bool]] = {}  # label -> the new one, and whether it is the control's
    for method in {row.method for row in rows if row.competes}:
        kin = [row for row in rows if row.method == method]
        fast = [row for row in kin if row.lr == row.rate in rates and _is_plain(row)]
        if len(kin) == 2 and len(fast) == 1 and _differ_in(*kin) <= {"lr", MOMENTUM}:
            named |= {row.label: (method, False) for row in kin}
            named[fast[0].label] = (f"{method}{AT_RATE}", True)
    return [
        replace(row, label=named[row.label][0], alone=named[row.label][1]) if row.label in named else row
        for row in rows
    ]


def _is_plain(row: Row) -> bool:
    return row.fields.get(MOMENTUM, "0") in ("0", "0.0")


def _differ_in(first: Row, second: Row) -> set[str]:
    one, other = first.fields, second.fields
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
