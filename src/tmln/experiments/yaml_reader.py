"""YAML as plain values: no aliases, no tags, neither deep nor long."""

from __future__ import annotations

import re
from typing import Any

import yaml

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
LONGEST = 1 << 20  # characters
DEEPEST = 20  # lists and mappings within each other


def read_yaml(text: str) -> Any:
    """Parse YAML; raise a ValueError for other text, and for what can expand to gigabytes."""
    if len(text) > LONGEST:
        raise ValueError(f"not read: {len(text):,} characters, more than the {LONGEST:,} that a configuration may have")
    try:
        return yaml.load(text, PlainLoader)
    except Unwanted as error:
        raise ValueError(f"not read: {error}") from None
    except Exception as error:  # a constructor of YAML's can raise almost anything
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from None


def read_value(text: str) -> Any:
    """Read a value of a command line: YAML, and numbers such as 1e-3, which YAML 1.1 lacks."""
    text = text.strip()
    if NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    try:
        return read_yaml(text)
    except ValueError:
        return text


class Unwanted(Exception):
    """A feature of YAML that plain values do not need."""


class PlainLoader(yaml.SafeLoader):
    """A YAML loader that refuses aliases, tags and depth before it builds anything."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        where = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise Unwanted(f"{where} has an anchor or alias (& or *); write the value out where it is used")
        if getattr(event, "tag", None) is not None:
            raise Unwanted(f"{where} has a tag ({event.tag}); write the plain value")
        if self.depth >= DEEPEST:
            raise Unwanted(f"{where} is more than {DEEPEST} lists or mappings deep")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1
