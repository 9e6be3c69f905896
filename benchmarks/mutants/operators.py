"""Generate mutants of a source file: single small edits, each as the range of bytes that it replaces.

The text is edited in place rather than printed from a changed tree, so that a mutant differs from the source
in one place.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass

from benchmarks.mutants.ignored import ignored_fields, is_ignored

COMPARED = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
COMPUTED = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.MatMult: ("@", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
# functions of torch and numpy in place of operators
_PAIRS = (
    ("add_", "sub_"),
    ("mul_", "div_"),
    ("addcmul_", "addcdiv_"),
    ("addcmul", "addcdiv"),
    ("_foreach_add_", "_foreach_sub_"),
    ("_foreach_add", "_foreach_sub"),
    ("_foreach_mul_", "_foreach_div_"),
    ("_foreach_mul", "_foreach_div"),
    ("_foreach_addcmul_", "_foreach_addcdiv_"),
    ("sum", "mean"),
    ("min", "max"),
    ("minimum", "maximum"),
    ("clamp_min", "clamp_max"),
    ("clamp_min_", "clamp_max_"),
    ("all", "any"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("floor", "ceil"),
)
NAMED = {**dict(_PAIRS), **{b: a for a, b in _PAIRS}}


@dataclass(frozen=True)
class Mutant:
    """One edit: bytes ``start`` to ``end`` of ``file`` become ``text``."""

    file: str
    function: str  # the qualified name of what it is in; '' at the top of the file
    line: int
    start: int
    end: int
    text: str
    before: str  # the statement it is in, on one line, as it is
    after: str  # and as it becomes
    twin: int = 0  # counts equal edits of equal statements in one function

    @property
    def key(self) -> str:
        """Return a key without line numbers: lists and samples stay valid after edits elsewhere."""
        return "\n".join([self.file, self.function, self.before, self.after, str(self.twin)])

    def apply(self, source: str) -> str:
        raw = source.encode()
        return (raw[: self.start] + self.text.encode() + raw[self.end :]).decode()


def mutants_of(source: str, file: str) -> list[Mutant]:
    """Return all mutants of one file that parse, in the order of the text."""
    finder = _Finder(source, file)
    finder.visit(ast.parse(source))
    seen: Counter[str] = Counter()
    found = []
    for mutant in sorted(finder.found, key=lambda m: (m.start, m.end, m.text)):
        try:
            ast.parse(mutant.apply(source))
        except SyntaxError:
            continue
        twin = seen[mutant.key]
        seen[mutant.key] += 1
        found.append(Mutant(**{**mutant.__dict__, "twin": twin}))
    return found


class _Finder:
    def __init__(self, source: str, file: str) -> None:
        self.raw, self.file = source.encode(), file
        self.starts = [0]
        for row in self.raw.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(row))
        self.inside: list[str] = []
        self.statement: ast.AST | None = None
        self.found: list[Mutant] = []

    def visit(self, node: ast.AST) -> None:
        if is_ignored(node):
            return
        outer = self.statement
        if isinstance(node, (ast.stmt, ast.ExceptHandler)):
            self.statement = node
            self._statement(node)
        if isinstance(node, ast.expr):
            self._expression(node)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            self.inside.append(node.name)
        ignored = ignored_fields(node)
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if name not in ignored and isinstance(child, ast.AST):
                    self.visit(child)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            self.inside.pop()
        self.statement = outer

    def _statement(self, node: ast.AST) -> None:
        if isinstance(node, (ast.AugAssign, ast.Raise)) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        ):
            self._replace(node, "pass")
        if isinstance(node, ast.Assign) and any(isinstance(t, (ast.Attribute, ast.Subscript)) for t in node.targets):
            self._replace(node, "pass")
        if isinstance(node, ast.Break):
            self._replace(node, "continue")
        if isinstance(node, ast.Continue):
            self._replace(node, "break")
        if isinstance(node, ast.Return) and node.value is None:
            self._replace(node, "pass")
        if isinstance(node, (ast.If, ast.While)):
            self._negate(node.test)
        if isinstance(node, ast.AugAssign) and type(node.op) in COMPUTED:
            old, new = COMPUTED[type(node.op)]
            self._between(node.target, node.value, f"{old}=", f"{new}=")

    def _expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
                self._between(left, right, *COMPARED[type(op)])
        if isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
            self._between(node.left, node.right, *COMPUTED[type(node.op)])
        if isinstance(node, ast.BoolOp):
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                self._between(left, right, old, new)
        if isinstance(node, ast.UnaryOp):
            self._put(self._at(node), self._at(node.operand), "")
        if isinstance(node, ast.Constant):
            self._constant(node)
        if isinstance(node, ast.IfExp):
            self._negate(node.test)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            for loop in node.generators:
                for test in loop.ifs:
                    self._negate(test)
        if isinstance(node, ast.Call):
            self._call(node)

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, str(not value))
        elif isinstance(value, int):
            self._replace(node, str(value + 1))
        elif isinstance(value, float):
            self._replace(node, repr(value * 2 if value else 1.0))
        elif isinstance(value, str):
            self._put(self._end(node) - 1, self._end(node) - 1, "XX")

    def _call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in NAMED:
            end = self._end(node.func)
            self._put(end - len(name), end, NAMED[name])
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        for keyword in () if "keywords" in ignored_fields(node) else node.keywords:
            if keyword.arg is None or is_ignored(keyword):
                continue
            start, end = self._at(keyword), self._end(keyword)
            others = [v for v in values if self._end(v) < start]
            if others:  # with the comma before it
                self._put(max(self._end(v) for v in others), end, "", gap=start)
            elif len(values) == 1:
                self._put(start, end, "")

    def _negate(self, test: ast.expr) -> None:
        same = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        same |= isinstance(test, ast.Compare) and not isinstance(test.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        if not same:  # else another mutant says the same
            self._replace(test, f"not ({self.raw[self._at(test) : self._end(test)].decode()})")

    def _between(self, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        """Swap the operator between two operands; brackets and line ends may be there, too."""
        start, end = self._end(left), self._at(right)
        gap = self.raw[start:end].decode()
        word = re.escape(old).replace("\\ ", r"\s+")
        match = re.search(rf"\b{word}\b" if old[0].isalpha() else word, gap)
        if match and "#" not in gap:
            self._put(start + match.start(), start + match.end(), new)

    def _replace(self, node: ast.AST, text: str) -> None:
        self._put(self._at(node), self._end(node), text)

    def _put(self, start: int, end: int, text: str, gap: int | None = None) -> None:
        """Add a mutant; the text before the byte ``gap`` of the range has to be a comma and white space."""
        if gap is not None and self.raw[start:gap].decode().strip(" ,\n") != "":
            return
        first, last = self._lines()
        kept = self.raw[first:start], self.raw[end:last]
        before, after = self.raw[first:last], kept[0] + text.encode() + kept[1]
        self.found.append(
            Mutant(
                self.file,
                ".".join(self.inside),
                self.raw[:start].count(b"\n") + 1,
                start,
                end,
                text,
                " ".join(before.decode().split()),
                " ".join(after.decode().split()),
            )
        )

    def _lines(self) -> tuple[int, int]:
        """Return the bytes of the present statement, without its body if it has one."""
        node = self.statement
        assert isinstance(node, (ast.stmt, ast.ExceptHandler))
        body = getattr(node, "body", None)
        if not body:
            return self._at(node), self._end(node)
        first = body[0]
        line = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))])
        return self._at(node), max(self.starts[line - 1], self._at(node)) if line > node.lineno else self._at(first)

    def _at(self, node: ast.AST) -> int:
        return self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined,no-any-return]

    def _end(self, node: ast.AST) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined,no-any-return]
