"""Generate a page for each package: every public name, its signature and its docstring.

The source is read, not imported: the site needs none of the libraries that integrations are for, and takes seconds.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from docs.extensions.docstrings import Link, html, inline

SOURCE = Path(__file__).parents[2] / "src" / "tmln"
Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Module:
    """A file of the package; ``tmln.experiments.run`` is in the package ``experiments``."""

    name: str
    tree: ast.Module

    @property
    def package(self) -> str:
        return (self.name.split(".") + ["tmln"])[1]


def modules(source: Path = SOURCE) -> Iterator[Module]:
    """Yield every module, in the order of their names."""
    for file in sorted(source.rglob("*.py")):
        parts = [part for part in file.relative_to(source).with_suffix("").parts if part != "__init__"]
        if parts != ["__main__"]:
            yield Module(".".join(["tmln", *parts]), ast.parse(file.read_text(encoding="utf-8")))


def public(body: list[ast.stmt]) -> list[Defined]:
    """Yield classes and functions without a leading underscore; of overloads, the explained one."""
    found = [node for node in body if isinstance(node, Defined) and not node.name.startswith("_")]
    return [
        node
        for node in found
        if not any(ast.unparse(one).split(".")[-1] in ("overload", "setter") for one in node.decorator_list)
    ]


def signature(node: Defined) -> str:
    """Return how it is called: ``name(a, *, b=1) -> int``, ``class Name(Base)``."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    if any(ast.unparse(one).split(".")[-1] in ("property", "cached_property") for one in node.decorator_list):
        return f"{node.name}: {ast.unparse(node.returns)}" if node.returns else node.name
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returned}"


def fields(node: ast.ClassDef) -> list[str]:
    """What a class declares: ``seed: int = 0``."""
    found = [one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    return [ast.unparse(one) for one in found if not ast.unparse(one.target).startswith("_")]


def described(node: Defined, owner: str, link: Link) -> str:
    """Return an entry of the page, with those of a class within it."""
    name = f"{owner}.{node.name}"
    inside = [f'<pre tabindex="0">{escape(inspect.cleandoc(signature(node)), quote=False)}</pre>']
    inside += [html(text, link)] if (text := ast.get_docstring(node)) else []
    if isinstance(node, ast.ClassDef):
        if declared := fields(node):
            lines = escape("\n".join(declared), quote=False)
            inside.append(f'<details><summary>fields</summary><pre tabindex="0">{lines}</pre></details>')
        made = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
        if made is not None:
            call = escape(f"{node.name}({ast.unparse(made.args).removeprefix('self').lstrip(', ')})", quote=False)
            inside.insert(1, f'<pre tabindex="0">{call}</pre>')
        inside += [described(one, name, link) for one in public(node.body)]
    return f'<div class="entry" id="{name}">{"".join(inside)}</div>'


def names(module: Module) -> Iterator[str]:
    """Return every public name of a module, its own first."""
    yield module.name
    for node in public(module.tree.body):
        yield f"{module.name}.{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from (f"{module.name}.{node.name}.{one.name}" for one in public(node.body))


def exported(module: Module) -> list[str]:
    """The names of ``__all__``."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def values(module: Module) -> Iterator[str]:
    """Yield the tables and aliases that a module defines, which have no entry of their own."""
    for node in module.tree.body:
        for target in [*getattr(node, "targets", []), getattr(node, "target", None)]:
            if isinstance(target, ast.Name) and not target.id.startswith("_"):
                yield f"{module.name}.{target.id}"


def first_line(docstring: str) -> str:
    """The first sentence or formula of a docstring, which may go on in the next line.

    >>> first_line("What it is,\\nand why.\\n\\nMore.")
    'What it is, and why.'
    """
    lines = docstring.split("\n\n")[0].splitlines()
    end = next((k for k, line in enumerate(lines) if line.rstrip().endswith((".", ":", "?"))), len(lines) - 1)
    return " ".join(lines[: end + 1])


def offered(module: Module) -> dict[str, str]:
    """What a package hands on under its own name: ``{"tmln.optim.TMLN": "tmln.optim.tmln.TMLN"}``."""
    blocks = [module.tree.body, *(node.body for node in module.tree.body if isinstance(node, ast.If))]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {
        f"{module.name}.{one.asname or one.name}": f"{node.module}.{one.name}" for node in imports for one in node.names
    }


def said(module: Module) -> Iterator[tuple[str, str]]:
    """Return every public name of a module, with its docstring."""
    yield module.name, ast.get_docstring(module.tree) or ""
    for node in public(module.tree.body):
        yield f"{module.name}.{node.name}", ast.get_docstring(node) or ""


def pages() -> dict[Path, str]:
    """Return the pages in reStructuredText, by where they are made."""
    known = list(modules())
    homes = {name: f"{module.package}.html#{name}" for module in known for name in names(module)}
    others = {alias: name for module in known for alias, name in offered(module).items()}
    tables = {name: f"{module.package}.html#{module.name}" for module in known for name in values(module)}
    texts = {name: text for module in known for name, text in said(module)}

    def home(name: str) -> str:
        """Where it is defined: tmln.TMLN is tmln.optim.TMLN, which is tmln.optim.tmln.TMLN."""
        for _ in range(4):
            name = name if name in homes else others.get(name, name)
        return name

    def linked(module: Module) -> Link:
        def link(name: str) -> str | None:
            found = (home(full) for full in (name, f"{module.name}.{name}"))
            return next((homes[full] for full in found if full in homes), None)

        return link

    def first(module: Module) -> str:
        """What a package hands on under its own name, before all that it is made of."""
        points = []
        for name in exported(module) if module.name in ("tmln", f"tmln.{module.package}") else ():
            own = f"{module.name}.{name}"
            full = home(others.get(own, own))  # a function may be called as the module that it is in
            about = inline(first_line(texts.get(full, "")), linked(module))
            address = homes.get(full) or tables[full]
            points.append(f'<li><a href="{address}"><code>{name}</code></a>{": " * bool(about)}{about}</li>')
        return f"<ul>{''.join(points)}</ul>" if points else ""

    made: dict[Path, list[str]] = {}
    for module in known:
        lines = made.setdefault(Path("internals") / f"{module.package}.rst", [])
        text = "".join([
            f'<div id="{module.name}">{html(ast.get_docstring(module.tree) or "", linked(module))}</div>',
            first(module),
            *(described(node, module.name, linked(module)) for node in public(module.tree.body)),
        ])  # fmt: skip
        lines += [module.name, ("-" if lines else "=") * len(module.name), "", ".. raw:: html", ""]
        lines += [f"   {line}" for line in text.splitlines()] + [""]
    return {path: "\n".join(lines) for path, lines in made.items()}
