"""A real Chromium."""

import os
import shutil
from importlib.util import find_spec

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = os.environ.get("LAYERWISE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
FLAGS += ("--disable-component-update", "--disable-sync")


@pytest.fixture(scope="module")
def chromium():
    if BROWSER is None or find_spec("playwright") is None:
        pytest.skip("no Chromium, or no playwright to drive it: apt-get install chromium; pip install playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield browser
        browser.close()
