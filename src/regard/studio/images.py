"""Images that were sent to the studio, by a key: an address with the key shows the image again.

They are held in memory until the server ends. The oldest give way to new ones beyond a total size.
"""

from __future__ import annotations

from hashlib import sha256
from threading import Lock
from typing import Any

from fastapi import FastAPI, HTTPException

from regard.data.images import DATA_URL
from regard.studio.requests import Body

MAX_CHARACTERS = 64_000_000
"""Of all images together, as data URLs."""


class ImageBody(Body):
    """An image for the address of a view."""

    name: str
    """The name of its file."""
    content: str
    """The image as a data URL."""


class SentImages:
    """The images, in the order in which they came."""

    def __init__(self) -> None:
        self._images: dict[str, ImageBody] = {}
        self._lock = Lock()

    def keep(self, body: ImageBody) -> dict[str, str]:
        """Keep an image; the key depends on its content alone."""
        if not body.content.startswith(DATA_URL):
            raise HTTPException(422, "an image is expected, as a data URL")
        key = sha256(body.content.encode()).hexdigest()[:16]
        with self._lock:
            self._images.pop(key, None)
            self._images[key] = body
            while sum(len(one.content) for one in self._images.values()) > MAX_CHARACTERS:
                del self._images[next(iter(self._images))]
        return {"key": key}

    def show(self, key: str) -> dict[str, Any]:
        """The image of a key."""
        image = self._images.get(key)
        if image is None:
            raise HTTPException(404, "there is no such image: they are kept until the server ends")
        return image.model_dump()

    def add_routes(self, api: FastAPI) -> None:
        """Add the routes."""
        api.post("/images")(self.keep)
        api.get("/images/{key}")(self.show)
