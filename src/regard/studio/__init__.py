"""The HTTP server: `regard serve`; and the same as a deployment of Ray Serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.errors import import_extra


def deployment(run: str | Path, *, device: str = "auto", **settings: Any) -> Any:
    """The server of a run (server.py) as a `ray.serve.Deployment`; each replica loads the run's
    model.

    `settings` are fields of `Settings` (settings.py): without a `token` only requests to this
    machine's own name are answered. `.options(num_replicas=2, ray_actor_options={"num_gpus":
    1}).bind()` is Ray's own; the folder must be there under the same path on every node.
    """
    serve = import_extra("ray.serve", extra="ray", where="regard.studio.deployment", doing="to use")
    folder = Path(run).absolute()

    def build() -> Any:
        from regard.api import load
        from regard.studio.server import create_app
        from regard.studio.settings import Settings

        return create_app({folder.name: load(folder, device=device)}, Settings(**settings))

    from regard.runs.run import Run
    from regard.studio.settings import Settings

    Run(
        folder
    )  # what is not a run, or a token that is too short, is refused here, not on every node
    Settings(**settings)
    return serve.deployment(serve.ingress(build)(), name="regard")
