"""`check` of what is sent, in a process of its own, which can be ended whatever it computes.

A line of JSON on the standard input asks for a check, and a line on the standard output answers it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.errors import DataError, Problem, RegardError

IDLE_SECONDS = 300.0
"""Seconds after which a process without work ends."""
POLL_SECONDS = 0.1
"""Seconds between two looks at whether a check is still wanted."""
END_SECONDS = 5.0
"""Seconds that a process may take to end."""


class Checker:
    """Checks recipes and files, one at a time. Its process is kept for the next check unless it has
    to be ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = queue.Queue[bytes]()
        self._ended = False
        """Whether it has closed its output, so that it ends by itself."""

    def check(
        self,
        given: str,
        others: Sequence[str],
        within: Path,
        out: Path | None,
        wanted: Callable[[], None],
    ) -> tuple[dict[str, Any], list[str]]:
        """The result that `regard check --json` prints, and the sentences for people if there are
        no problems.

        `given` is a recipe, and `others` are overrides; or both are files of data, for which a
        recipe is proposed and written to `out`. Only files in `within` may be read. `wanted` raises
        an error once nobody waits for the check, which ends the process.
        """
        question = {
            "given": given,
            "others": [*others],
            "within": str(within),
            "out": None if out is None else str(out),
        }
        try:
            answer = self._answer_to(json.dumps(question).encode() + b"\n", wanted)
        except BaseException:
            self.close()
            raise
        reply = json.loads(answer)
        if "problems" in reply:
            raise RegardError(problems=[Problem(**problem) for problem in reply["problems"]])
        if "failed" in reply:
            raise RuntimeError(reply["failed"])
        return reply["result"], reply["sentences"]

    def _answer_to(self, question: bytes, wanted: Callable[[], None]) -> bytes:
        """The answer of the process; of a new one if the old one had no work and has just ended."""
        for _ in range(2):
            self._ask(question)
            if answer := self._next_line(wanted):
                return answer
            if self.close() != 0:
                break
        what = "the process of the check has died, as when memory runs out"
        raise DataError(what, where="check", hint="send less data, or a smaller model")

    def _ask(self, question: bytes) -> None:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._answers = queue.Queue()
            self._ended = False
            self._process = subprocess.Popen(
                [sys.executable, "-m", "regard.studio.checker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            threading.Thread(
                target=_read_lines, args=(self._process, self._answers), daemon=True
            ).start()
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended: there will be no answer
            self._process.stdin.write(question)
            self._process.stdin.flush()

    def _next_line(self, wanted: Callable[[], None]) -> bytes:
        """The next line; empty if the process has ended without one."""
        while True:
            try:
                answer = self._answers.get(timeout=POLL_SECONDS)
            except queue.Empty:
                wanted()
            else:
                self._ended = not answer
                return answer

    def close(self) -> int | None:
        """End the process and all that it has started. Returns its exit code: 0 if it had ended
        because it had no work."""
        process = self._process
        self._process = None
        if process is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            if self._ended:
                process.wait(END_SECONDS)
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        code = process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()
        return code


def _read_lines(process: subprocess.Popen[bytes], answers: queue.Queue[bytes]) -> None:
    assert process.stdout is not None
    with suppress(ValueError, OSError):  # closed meanwhile
        for line in process.stdout:
            answers.put(line)
    answers.put(b"")


# In the process


def main() -> None:
    """Answer one question after the other. The process ends with the one that asks, or if no
    question comes for a long time."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is not an answer
    with suppress(OSError):  # Linux: if memory runs out this process goes first, not the server
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    questions = queue.Queue[bytes]()
    threading.Thread(target=_listen, args=(questions,), daemon=True).start()
    while True:
        try:
            question = json.loads(questions.get(timeout=IDLE_SECONDS))
        except queue.Empty:
            return
        out.write(json.dumps(_check_answer(**question)).encode() + b"\n")
        out.flush()


def _listen(questions: queue.Queue[bytes]) -> None:
    for line in sys.stdin.buffer:
        questions.put(line)
    os._exit(1)  # nobody waits any more


def _check_answer(given: str, others: list[str], within: str, out: str | None) -> dict[str, Any]:
    from regard.training.check import check

    try:
        result = check(given, others, out=out, quiet=True, within=within)
    except RegardError as error:
        return {"problems": [asdict(problem) for problem in error.problems]}
    except Exception as error:  # our mistake: the log of the server has it
        traceback.print_exc()
        return {"failed": repr(error)}
    return {"result": result.to_json(), "sentences": [*result.sentences()] if result.ok else []}


if __name__ == "__main__":
    main()
