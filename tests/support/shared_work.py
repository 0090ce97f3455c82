"""Work for several processes; they import this file, so it imports next to nothing."""

import os
import signal
import sys


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


class Importing(Dying):
    """Answers with the piece, and whether its process has imported a module that nothing here needs."""

    def __call__(self, piece: int) -> tuple[int, bool]:  # type: ignore[override]
        return piece, "zipapp" in sys.modules


class Broken(Dying):
    """Ends the process that unpickles it; more than a pipe holds."""

    def __reduce__(self) -> tuple[object, tuple[int, bytes]]:
        return _end, (9, bytes(1 << 20))


def _end(code: int, large: bytes) -> None:
    os._exit(code)


def write_whether_ctrl_c_is_heard(file: str) -> None:
    blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    heard = not blocked and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with open(file, "w") as written:
        written.write(str(heard))
