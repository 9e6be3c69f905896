"""A real browser for the page: the system's Chromium, driven by Playwright. Where there is none, CI insists."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tmln.report.page import write_report


def chromium() -> Iterator[Any]:
    """A browser, or a skip that says why; a failure where the environment is CI."""
    where = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        where = None
    if where is None:
        why = "no browser: install chromium and playwright to test the report"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    with sync_playwright() as playwright:
        # Without a GPU, software stands in for one: more that can stop for ever, for pages that draw nothing with it.
        browser = playwright.chromium.launch(executable_path=where, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


PATIENCE = 120_000  # milliseconds till a test gives up what it waits for: no measure of anything
# Frames in which the page hears of its new size, colours and place, and of what came into sight; then its timers up to
# `wait` milliseconds, which were set before this one. False if there is no frame for ten seconds.
SETTLED = """{
    setTimeout(() => done(false), 10000)
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(true), wait)))
}"""


def settle(page: Any, change: str, *given: Any) -> None:
    """Make a change, and wait till the page has heard of it.

    On a busy machine it was seen that the process that draws for all tabs stood still, and nothing ended what waited
    for a frame. The browser starts another if that one is gone.
    """
    if page.evaluate(change, [*given]):
        return
    session = page.context.browser.new_browser_cdp_session()
    for process in session.send("SystemInfo.getProcessInfo")["processInfo"]:
        if process["type"] == "GPU":
            os.kill(process["id"], signal.SIGKILL)
    session.detach()
    assert page.evaluate(f"([wait]) => new Promise(done => {SETTLED})", [0]), "the browser draws nothing"


def press(place: Any) -> None:
    """A click on what is in sight once it was scrolled to, and is not below something else; without a frame drawn."""
    place.wait_for()
    hit = """one => {
        one.scrollIntoView({ behavior: "instant", block: "center" })
        const { x, y, width, height } = one.getBoundingClientRect()
        const top = document.elementFromPoint(x + width / 2, y + height / 2)
        if (!one.contains(top) || one.disabled) return top?.outerHTML.slice(0, 200) ?? "nothing"
        one.focus()
        one.click()
        return ""
    }"""
    assert place.evaluate(hit) == "", "something else is there"


class Reader:
    """Opens pages, and keeps account of all that they ask for and of all that goes wrong in them."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.asked: list[str] = []
        self.wrong: list[str] = []
        self.mine: list[str] = []  # addresses of pages
        self.tabs: list[Any] = []
        self.shared: Any | None = None

    def open(
        self, runs: Path, fragment: str = "", width: int = 1300, scheme: str = "light", apart: bool = False
    ) -> Any:
        """The page of a folder of runs, read and ready: in the tab where others were before, or ``apart``, to stay.

        A tab that has read one page knows the scripts of all, which takes most of the time. Nothing else is kept.
        """
        self.mine.append(address := write_report(runs, runs.parent / f"{runs.name}.html").as_uri())
        tab = self._tab() if apart or self.shared is None else self.shared
        self.shared = self.shared if apart else tab
        tab.goto("about:blank")  # or else another place of the same page were no new page
        tab.emulate_media(color_scheme=scheme)
        tab.set_viewport_size({"width": width, "height": 900})
        tab.goto(address + fragment)
        tab.wait_for_selector("html[data-ready]")
        return tab

    def _tab(self) -> Any:
        tab = self.browser.new_page()
        self.tabs.append(tab)
        tab.set_default_timeout(PATIENCE)
        tab.on("request", lambda request: self._note(request.url))
        tab.on("console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        return tab

    def close(self) -> None:
        """A page that nobody looks at still has its pictures, and a megabyte of scripts."""
        for tab in self.tabs:
            tab.close()
        self.tabs.clear()
        self.shared = None

    def _note(self, url: str) -> None:
        if url.partition("#")[0] not in self.mine and not url.startswith(("data:", "blob:")):
            self.asked.append(url)


def look(page: Any, fragment: str = "", width: int = 1300, scheme: str = "light") -> Any:
    """The same page at another address: what follows the # is all that a view is."""
    page.emulate_media(color_scheme=scheme)
    redrawn = 150 if page.viewport_size["width"] != width else 0  # the page waits for 120 ms without a new size
    page.set_viewport_size({"width": width, "height": 900})
    settle(
        page,
        f"""([text, wait]) => new Promise(done => {{
            const before = location.href, settled = () => {SETTLED}
            location.hash = text
            location.href === before ? settled() : addEventListener("hashchange", settled, {{ once: true }})
        }})""",
        fragment,
        redrawn,
    )
    return page


def until(page: Any, expression: str) -> None:
    """Wait till it is true; Playwright's own way is to evaluate text in the page, which the page's policy forbids."""
    for _ in range(PATIENCE // 50):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {expression}")


def row(page: Any, label: str) -> Any:
    """The row of the table with this label."""
    return page.locator("#table tbody tr").filter(has=page.locator(f'[data-focus="row {label}"]'))


def labels(page: Any) -> list[str]:
    found: list[str] = page.eval_on_selector_all("#table tbody tr", "rows => rows.map(row => row.dataset.row)")
    return found


def everything_drawn(page: Any) -> None:
    """Scroll through the page as a reader would."""
    height = page.evaluate("document.documentElement.scrollHeight")
    for top in range(0, height, 700):
        settle(page, f"([top, wait]) => new Promise(done => {{ scrollTo(0, top); {SETTLED} }})", top, 0)
    page.evaluate("scrollTo(0, 0)")


def faults(page: Any) -> list[str]:
    """What axe finds serious, with the element it is about."""
    from axe_playwright_python.sync_playwright import Axe

    everything_drawn(page)
    bad = [one for one in Axe().run(page).response["violations"] if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {node['html'][:200]}" for one in bad for node in one["nodes"]]


def downloaded(page: Any, place: str, format: str) -> bytes:
    """What the first menu of a place gives."""
    press(page.locator(f"{place} details.menu > summary").first)
    with page.expect_download() as waiting:
        press(page.locator(f'{place} details.menu[open] button:has-text("{format}")'))
    return bytes(Path(waiting.value.path()).read_bytes())
