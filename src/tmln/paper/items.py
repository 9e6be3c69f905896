"""Every table and figure of the paper, by name, and the barrier that it only speaks of."""

from __future__ import annotations

from tmln.paper import (
    barrier,
    confirm,
    figure2,
    figure3,
    recipes,
    shield,
    table1,
    table2,
    table3,
    table4,
    table5,
    table6,
    tuning,
)
from tmln.paper.item import Item

_MODULES = (tuning, table1, table2, table3, table4, table5, table6, figure2, figure3, barrier, recipes, confirm, shield)
ITEMS: dict[str, Item] = {module.ITEM.name: module.ITEM for module in _MODULES}
