"""The captioners in small, with each decoder and each way to read an image, and images for them."""

from collections.abc import Sequence

import numpy as np

from model_cases import TARGETS, tokens_of
from regard.data.batches import Batch
from regard.data.images import ImagesConfig, Picture, images_of
from regard.models.captioner import CaptionerConfig

SIZE, WIDTH = 16, 5
SMALL = {
    "channels": [4, 6],
    "images": ImagesConfig(size=SIZE),
    "width": 8,
    "attention": 6,
    "layers": 2,
    "heads": 2,
    "feed_forward": 12,
    "dropout": 0.0,
}
FEATURES = {**SMALL, "encoder": "features", "feature_width": WIDTH}
CASES = {
    "plain": CaptionerConfig(**SMALL, decoder="plain"),
    "attention": CaptionerConfig(**SMALL, decoder="attention"),
    "attention-without-gate": CaptionerConfig(**SMALL, decoder="attention", gated=False),
    "transformer": CaptionerConfig(**SMALL, decoder="transformer"),
    "plain-of-features": CaptionerConfig(**FEATURES, decoder="plain"),
    "attention-of-features": CaptionerConfig(**FEATURES, decoder="attention"),
    "transformer-of-features": CaptionerConfig(**FEATURES, decoder="transformer"),
}
ATTENDING = [name for name, config in CASES.items() if config.decoder != "plain"]


def pictures_of(config: CaptionerConfig, count: int = 4, seed: int = 0) -> list[Picture]:
    """Images; or features of unequal grids: 2 x 3, a list of 4, 3 x 1, 1 x 2."""
    random = np.random.default_rng(seed)
    if config.encoder == "convolution":
        side = SIZE >> 2
        shape = (SIZE, SIZE, 3)
        return [
            Picture(random.integers(0, 256, shape, dtype=np.uint8), side**2, side)
            for _ in range(count)
        ]
    grids = [(6, 3), (4, 1), (3, 1), (2, 2)]
    return [
        Picture(random.normal(size=(s, WIDTH)).astype(np.float32), s, c)
        for s, c in (grids * count)[:count]
    ]


def batch_of(
    pictures: Sequence[Picture], targets: Sequence[Sequence[int]] = TARGETS, *, extra: int = 0
) -> Batch:
    predicted = sum(len(target) - 1 for target in targets)
    return Batch(images_of(pictures), tokens_of(targets, extra=extra), tokens=predicted)
