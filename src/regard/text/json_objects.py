"""JSON in which every object has each of its keys once."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from typing import Any

from regard.errors import MAX_VALUE_CHARACTERS

RENAME_KEY = "only one of its values could be read: rename one, or take it out"
"""What to do about a key that occurs twice."""


class RepeatedKeyError(ValueError):
    """An object has a key twice."""


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. A key that occurs twice is refused, since one of its values would not be
    read."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated = next(key for key, _ in pairs if counts[key] > 1)
        values = (value for key, value in pairs if key == repeated)
        shown = [
            json.dumps(value, ensure_ascii=False)[:MAX_VALUE_CHARACTERS]
            for value in islice(values, 2)
        ]
        what = f"the key {repeated!r} occurs twice in an object: {' and '.join(shown)}"
        raise RepeatedKeyError(what)
    return found


DECODER = json.JSONDecoder(object_pairs_hook=object_of)
