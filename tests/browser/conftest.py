"""Starts one browser for all tests of this folder; without one they skip."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def window():
    import webdriver

    if webdriver.installed() is None:
        pytest.skip(
            "no browser: install chromium and chromedriver (Debian: chromium, chromium-driver)"
        )
    with webdriver.started() as browser:
        yield browser


@pytest.fixture
def browser(window):
    """The window, of an ordinary size and in light colours, with nothing in its log."""
    window.screen(1280, 900)
    window.log()
    return window
