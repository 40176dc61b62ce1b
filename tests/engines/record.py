"""Write down what a real test bed makes of the scenes: `PYTHONPATH=tests:. python -m engines.record BED [SCENE...]`.

Each becomes `recorded/SCENE.json`: the job object and its pods as the API server gave them, less the managed fields.
`tests/test_status.py` reads them; when an operator's version changes they are recorded anew, and the table tells what
is different.
"""

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testbed.api import Api, ApiError, wait_for
from testbed.bed import running

from arena.engines import load
from engines.scenes import SCENES, Object, Pods, Scene

FOLDER = Path(__file__).parent / "recorded"
TEAM = "namespaces/team-a"
PLURALS = {"job": "jobs", "pytorchjob": "pytorchjobs", "tfjob": "tfjobs", "mpijob": "mpijobs", "trainjob": "trainjobs"}
PATIENCE = 240.0
BESIDE = {  # where what jobs bring is made
    "Service": f"/api/v1/{TEAM}/services",
    "TrainingRuntime": f"/apis/trainer.kubeflow.org/v1alpha1/{TEAM}/trainingruntimes",
}
LANES = 5  # scenes side by side


def path(engine_name: str) -> str:
    """Where jobs of this engine are made."""
    engine = load(engine_name)
    return f"/apis/{engine.group}/{engine.version}/{TEAM}/{PLURALS[engine_name]}"


def look(api: Api, engine_name: str, name: str) -> tuple[Object, Pods]:
    """A job and its pods."""
    thing = api.get(f"{path(engine_name)}/{name}")
    label = load(engine_name).pod_label
    return thing, api.get(f"/api/v1/{TEAM}/pods?labelSelector={label}={name}")["items"]


def make(api: Api, place: str, helpers: Sequence[Object], thing: Object) -> Object:
    """Make a job, and before it what it needs, which then is its own."""
    made = [api.post(BESIDE[one["kind"]], one) for one in helpers]
    job: Object = wait_for("an operator that has seen what the job needs", lambda: api.post(place, thing), 10)
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": thing["metadata"]["name"]}
    for one in made:
        owned = {"metadata": {"ownerReferences": [{**owner, "uid": job["metadata"]["uid"]}]}}
        api.patch(f"{BESIDE[one['kind']]}/{one['metadata']['name']}", owned)
    return job


def play(api: Api, name: str, scene: Scene) -> tuple[Object, Pods]:
    """Make the job, wait for the moment, and look."""
    place = path(scene.engine)
    make(api, place, scene.helpers(name), scene.manifest(name))
    try:
        if scene.patch:
            _until(api, scene, name, scene.started)
            api.patch(f"{place}/{name}", scene.patch)
        _until(api, scene, name, scene.when)
        time.sleep(scene.settle)
        return look(api, scene.engine, name)
    finally:
        api.delete(f"{place}/{name}?propagationPolicy=Background")


def _until(api: Api, scene: Scene, name: str, when: object) -> None:
    end = time.monotonic() + PATIENCE
    while not when(*look(api, scene.engine, name)):  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError(name)
        time.sleep(0.5)


def record(api: Api, name: str) -> str:
    """One scene, written down; a line that tells how it went."""
    try:
        thing, pods = play(api, name, SCENES[name])
    except (ApiError, TimeoutError) as error:
        return f"{name}: {error!r}"
    for one in (thing, *pods):
        one["metadata"].pop("managedFields", None)
    text = json.dumps({"thing": thing, "pods": pods}, indent=1, sort_keys=True)
    (FOLDER / f"{name}.json").write_text(f"{text}\n")
    return f"{name}: {len(pods)} pods"


def main(words: list[str]) -> None:
    """Record the scenes that are named, or all of them."""
    bed = next(bed for bed in running() if str(bed.place.number) == words[0])
    api = bed.api("alice")
    with ThreadPoolExecutor(LANES) as lanes:
        for line in lanes.map(lambda name: record(api, name), words[1:] or SCENES):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
