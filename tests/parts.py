"""The parts of CI: which part a test belongs to; and that a strict run skips no test. See CONTRIBUTING.md."""

import os

import pytest
from places import TESTS

# By folder. A test that needs real weights or data is in `real`, wherever it is; what is not listed is in `core`.
FOLDERS = {"abuse": "abuse", "pages": "docs"}
# Files whose tests run no model, no Ray, no browser and no mteb.
FAST = set(
    """
    accumulators audio_inputs bundled_probes ci docs findings gallery golden house inputs layers metric_edges
    metric_laws metrics_as_data numbers_in_pages numerics paper_numbers protocol readme release
    report results run_folder selection serve_numbers static_numbers study_numbers views
    vision_inputs
    """.split()
)

REAL_FIXTURES = {"real_model", "shared"}


def part_of(item: pytest.Item) -> str:
    """The one part in which CI runs a test."""
    if REAL_FIXTURES.intersection(item.fixturenames) or item.get_closest_marker("real"):
        return "real"
    return FOLDERS.get(item.path.relative_to(TESTS).parts[0], "core") if TESTS in item.path.parents else "core"


def file_of(item: pytest.Item) -> str:
    return item.path.stem.removeprefix("test_")


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        part = part_of(item)
        item.add_marker(part)
        if part != "real" and file_of(item) in FAST:
            item.add_marker("fast")


def no_skips() -> bool:
    return os.environ.get("LAYERWISE_STRICT") == "1"


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid}: {reason}. LAYERWISE_STRICT=1 turns every skip into a failure."


@pytest.hookimpl(wrapper=True, tryfirst=True)  # after pytest has decided what is a skip and what an expected failure
def pytest_runtest_makereport():
    report = yield
    if no_skips() and report.skipped and not hasattr(report, "wasxfail"):
        refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report():
    report = yield
    if no_skips() and report.skipped:
        refuse_skip(report)
    return report
