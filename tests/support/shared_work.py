"""Work for several processes; they import this file, so it imports next to nothing."""

import os


class Dying:
    """Ends its process at the piece 3."""

    def start(self, number: int, workers: int) -> None: ...

    def __call__(self, piece: int) -> int:
        if piece == 3:
            os._exit(9)
        return piece


class Numbered:
    """Answers with the process that works."""

    def start(self, number: int, workers: int) -> None: ...

    def __call__(self, piece: int) -> int:
        return os.getpid()


class Broken(Dying):
    """Ends the process that unpickles it; more than a pipe holds."""

    def __reduce__(self) -> tuple[object, tuple[int, bytes]]:
        return _end, (9, bytes(1 << 20))


def _end(code: int, large: bytes) -> None:
    os._exit(code)
