"""Shared by all tests: reproducible hypothesis runs, and random inputs by seed."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=50, print_blob=True)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def steady_torch() -> None:
    """Every test starts from one seed; tests that care pass their own generator."""
    torch.manual_seed(0)
