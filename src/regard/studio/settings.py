"""How the server is reached, and how much it takes on."""

from __future__ import annotations

from dataclasses import dataclass

from regard.errors import RegardError

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
"""The names of this machine for itself."""
MIN_TOKEN_CHARACTERS = 16
"""Fewest characters of a token."""


@dataclass(frozen=True)
class Settings:
    """How the server is reached, and what it takes on."""

    host: str = LOCAL_HOSTS[0]
    port: int = 8000
    token: str | None = None
    """Requests must carry it as `Authorization: Bearer TOKEN`; without one only this machine is
    served."""
    window: float = 0.003
    """Seconds that a request waits for others to be computed with it."""
    batch: int = 64
    """Most inputs that are computed at once."""
    queue: int = 1024
    """Most inputs of a run that may wait."""
    timeout: float = 60.0
    """Seconds until a request that has no answer is given up."""
    body: int = 8_000_000
    """Most bytes of a request."""
    grace: float = 5.0
    """Seconds that requests have to be answered after SIGTERM or Ctrl-C."""

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < MIN_TOKEN_CHARACTERS:
            what = (
                f"a token of {len(self.token)} character{'s'[: len(self.token) != 1]} can "
                "be guessed"
            )
            hint = f"give at least {MIN_TOKEN_CHARACTERS}: 'openssl rand -hex 32' makes one"
            raise RegardError(what, where="--token or REGARD_TOKEN", hint=hint)
        if self.host not in LOCAL_HOSTS and not self.token:
            what = f"whoever reaches {self.host} could use the runs"
            hint = "give --token, or set REGARD_TOKEN"
            raise RegardError(what, where="--host", hint=hint)
