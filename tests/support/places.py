"""Folders that tests read from."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The checkout."""
GOLDEN = ROOT / "tests" / "golden"
"""Recorded runs and numbers that must not change."""
SHARED = ROOT.parent / "shared" / "data"
"""Real data beside the checkout; tests that need it skip where it is absent."""
