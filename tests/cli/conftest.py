"""What several tests of the command line share."""

import pytest

from raw_cases import Runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Runs:
    """Runs on raw text (tests/support/raw_cases.py)."""
    return Runs(tmp_path_factory.mktemp("raw"))
