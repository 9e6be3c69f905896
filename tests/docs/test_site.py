"""The site as it is built: without a warning, whole, linked, silent, found through its search, and fit to be read."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from sphinx.util.inventory import InventoryFile

from tests.docs.blocks import ROOT, commands
from tests.docs.test_blocks import check
from tests.docstrings import SOURCE, public_names
from tests.report.browser import PATIENCE, chromium, faults
from tmln.methods.recipes import RECIPES

browser = pytest.fixture(scope="module")(chromium)
LOOKED_AT = {  # a page of each kind, in a light and in a dark package, on a desk and on a phone
    "index.html": (1300, "light"),
    "start/loop.html": (390, "dark"),
    "concepts/shield.html": (390, "light"),
    "made/components/step-tmln.html": (1300, "dark"),
    "made/methods/index.html": (390, "light"),
    "made/internals/optim.html": (390, "dark"),
    "made/api/tmln.TMLN.html": (390, "light"),
    "which_method.html": (390, "dark"),
}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once for all test processes, from the extra docs alone; a warning is an error.

    A process of its own: Sphinx changes what it is in.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    out, done = shared / "site", shared / "site.log"
    with (shared / "site.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not done.exists():
            words = [sys.executable, "-m", "tests.docs.only_docs", "-q", "-W", "--keep-going", "-b", "html"]
            built = subprocess.run([*words, "docs", str(out)], cwd=ROOT, capture_output=True, text=True, check=False)
            done.write_text(built.stdout + built.stderr if built.returncode else "", encoding="utf-8")
    assert done.read_text(encoding="utf-8") == ""
    return out


class Page(HTMLParser):
    """The places of a page that can be linked to, its links, what it loads, and pictures without words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.silent: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places |= {name for name in (given.get("id"), given.get("name")) if name}
        if tag == "a" and given.get("href"):
            self.links.add(str(given["href"]))
        if tag in ("script", "img") and given.get("src"):
            self.loads.add(str(given["src"]))
        if tag == "link" and given.get("href") and given.get("rel") not in ("index", "search", "next", "prev"):
            self.loads.add(str(given["href"]))
        if tag == "img" and not given.get("alt"):
            self.silent.append(str(given.get("src")))


@cache
def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def pages(site: Path) -> list[Path]:
    return [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]


def test_every_link_within_the_site_leads_somewhere(site: Path) -> None:
    lost = []
    for path in pages(site):
        for link in read(path).links:
            if re.match(r"[a-z]+:", link):
                continue
            file, _, place = unquote(link).partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (place and target.suffix == ".html" and place not in read(target).places):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert lost == []


def test_pages_load_nothing_from_elsewhere_and_pictures_have_words(site: Path) -> None:
    found = {
        f"{path.name}: {load}" for path in pages(site) for load in read(path).loads if re.match(r"(\w+:)?//", load)
    }
    assert found == set()
    assert [silent for path in pages(site) for silent in read(path).silent] == []


def test_every_page_is_in_the_tree(site: Path) -> None:
    """That of a later page, too: results and scale are picked up when they are there."""
    written = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert written <= {path.relative_to(site) for path in pages(site)}


def test_the_navigation_has_six_groups_of_few_entries(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert 15 < text.count('class="toctree-l1') <= 25
    groups = re.findall(r'class="caption-text">(\w+)<', text)
    assert groups == ["Start", "Guides", "Methods", "Results", "Reference", "Project"]


def test_names_have_a_page_their_source_and_an_inventory(site: Path) -> None:
    page = (site / "made" / "api" / "tmln.TMLN.html").read_text(encoding="utf-8")
    assert 'id="tmln.TMLN.consolidate"' in page
    assert "_modules/tmln/optim/tmln.html#TMLN" in page
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    classes = {*inventory.data["py:class"]}
    assert {"tmln.TMLN", "tmln.Learner", "tmln.Reservoir", "tmln.optim.OCAR", "tmln.streams.Stream"} <= classes


def test_every_public_name_is_in_the_internals(site: Path) -> None:
    places = {place for path in (site / "made" / "internals").glob("*.html") for place in read(path).places}
    wanted = {public.name for public in public_names(sorted(SOURCE.rglob("*.py"))) if public.explained}
    assert len(wanted) > 900
    assert {name for name in wanted if not name.startswith("tmln.__main__")} - places == set()


def test_made_commands_exist() -> None:
    from docs.extensions.made import pages as made

    found = {command for text in made().values() for command in commands(text)}
    assert len(found) > 30
    for command in found:
        check(command)


def opened(browser: Any, address: str, width: int = 1300, scheme: str = "light") -> tuple[Any, list[str]]:
    """A page, and all that goes wrong or leaves the disk from now on."""
    wrong: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE)
    page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else wrong.append(asked.url))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(address)
    return page, wrong


@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_page_is_fit_to_be_read(site: Path, browser: Any, name: str) -> None:
    width, scheme = LOOKED_AT[name]
    page, wrong = opened(browser, (site / name).as_uri(), width, scheme)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert wrong == []
    assert faults(page) == []  # last: axe asks for style sheets, which pages on disk refuse
    page.close()


def test_the_list_of_methods_filters(site: Path, browser: Any) -> None:
    page, wrong = opened(browser, (site / "made" / "methods" / "index.html").as_uri())
    rows = "[...document.querySelectorAll('article tbody tr')]"
    shown = f"{rows}.filter(row => row.offsetHeight).map(row => row.cells[0].innerText)"
    assert len(page.evaluate(shown)) == len(RECIPES)
    samples, boundaries, cost = page.locator("form.filters select").all()
    samples.select_option(label="no")
    assert "er" not in page.evaluate(shown)
    assert {"naive", "ewc", "lwf"} <= {*page.evaluate(shown)}
    boundaries.select_option(label="no")
    assert {"naive", "upgd"} <= {*page.evaluate(shown)}
    assert "ewc" not in page.evaluate(shown)
    samples.select_option(label="yes")
    cost.select_option(label="at most 1")
    assert "er" in page.evaluate(shown)
    assert "ocar" not in page.evaluate(shown)
    assert wrong == []
    page.close()


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("intransigence", "concepts/intransigence.html"),
        ("resume", "resume.html"),
        ("cite", "cite.html"),
        ("several GPUs", "devices.html"),
        ("pretrained model", "pretrained.html"),
        ("quickstart", "start/quickstart.html"),
    ],
)
def test_the_search_works_from_disk(site: Path, browser: Any, query: str, wanted: str) -> None:
    """What is looked for is among the first five."""
    page, wrong = opened(browser, (site / "search.html").as_uri() + f"?q={quote(query)}")
    page.wait_for_selector("#search-results ul.search li a")
    found = page.eval_on_selector_all("#search-results ul.search li a", "all => all.map(one => one.href)")
    assert any(wanted in link for link in found[:5])
    assert wrong == []
    page.close()
