"""Rules of accessibility, checked by axe-core in the browser: `npm install` brings it."""

from __future__ import annotations

import pytest

from .measure_style import ROOT
from .webdriver import Browser

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
_RUN = """const done = arguments[arguments.length - 1];
axe.run(document, { resultTypes: ['violations'] }).then((found) => done(found.violations.map(
  (rule) => [rule.id, ...rule.nodes.map((node) => node.html.slice(0, 120))])));"""


def find_violations(browser: Browser) -> list[list[str]]:
    """Return each broken rule with the elements that break it; skip the test without axe-core."""
    if not AXE.exists():
        pytest.skip("no axe-core: npm install")
    browser.run(AXE.read_text("utf-8"))
    found: list[list[str]] = browser.run_async(_RUN)
    return found
