"""Every table and figure by name, and the items beyond the paper."""

from __future__ import annotations

from tmln.paper import figure3, shield, table3, table4, tuning
from tmln.paper.landscapes import BARRIER_ITEM, FIGURE2_ITEM, TABLE5_ITEM
from tmln.paper.recipes import CONFIRM_ITEM, RECIPES_ITEM
from tmln.paper.study import Item
from tmln.paper.tables import TABLE1_ITEM, TABLE2_ITEM, TABLE6_ITEM

_ITEMS = (
    tuning.ITEM, TABLE1_ITEM, TABLE2_ITEM, table3.ITEM, table4.ITEM, TABLE5_ITEM, TABLE6_ITEM, FIGURE2_ITEM,
    figure3.ITEM, BARRIER_ITEM, RECIPES_ITEM, CONFIRM_ITEM, shield.ITEM,
)  # fmt: skip
ITEMS: dict[str, Item] = {item.name: item for item in _ITEMS}
