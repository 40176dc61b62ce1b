"""A state folder with thousands of finished runs."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import arena


def fill(env: Mapping[str, str], count: int) -> None:
    """Copies of one run, one second apart, that ended yesterday; read once, so that the index knows them."""
    client = arena.Client(backend="local", env=env)
    model = client.run(["true"], name="model")
    model.wait()
    runs = Path(env["ARENA_STATE_DIR"]) / "runs"
    made, facts = (json.loads((runs / model.run_id / name).read_text()) for name in ("job.json", "state.json"))
    model.delete()
    when = datetime.now(UTC) - timedelta(days=1)
    for number in range(count):
        path = runs / f"r{number}-abcd"
        path.mkdir(mode=0o700)
        at = (when + timedelta(seconds=number)).isoformat()
        job = {**made["job"], "name": f"r{number}"}
        values = {**made, "runId": path.name, "name": f"r{number}", "created": at, "job": job}
        (path / "job.json").write_text(json.dumps(values))
        (path / "state.json").write_text(json.dumps({**facts, "finished": at}))
        os.utime(path, (when.timestamp(), when.timestamp()))
    client.list()
