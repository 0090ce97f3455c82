"""Numbers that several seeds found, as the texts of the course write them."""

import pytest

from regard.course.lab import template_environment
from regard.course.seeds import over_seeds


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([47, 50, 53], "50 (47–53)"),
        ([9, 9, 10], "9.33 (9–10)"),
        ([9, 9, 9], "9"),
        ([0.58, 0.62, 0.66], "0.62 (0.58–0.66)"),
        ([1.0, 3.0], "2.00 (1.00–3.00)"),
    ],
)
def test_the_mean_of_counts_is_written_as_a_count(found: list[float], text: str) -> None:
    template = template_environment().from_string("{{ number }}")
    assert template.render(number=over_seeds(found)) == text
