"""What the tests of real pods say and see, in the words of the API."""

import contextlib
from typing import Any

from testbed.api import Api, ApiError, wait_for
from testbed.images import WORK

Object = dict[str, Any]
TEAM = "/api/v1/namespaces/team-a"


def container(name: str, *command: str, image: str = WORK, **rest: Any) -> Object:
    """A container of the work image."""
    return {"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "command": list(command), **rest}


def pod(name: str, *containers: Object, **spec: Any) -> Object:
    """A pod; it is not restarted unless the test says so."""
    rest = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": list(containers), **rest},
    }


def template(*containers: Object) -> Object:
    """A pod template."""
    return {"spec": {"containers": list(containers)}}


def pods_of(api: Api, start: str) -> list[Object]:
    """The pods whose names begin so."""
    found: list[Object] = api.get(f"{TEAM}/pods")["items"]
    return [one for one in found if one["metadata"]["name"].startswith(start)]


def log(api: Api, pod_name: str) -> str:
    """What a pod has written."""
    return api.text(f"{TEAM}/pods/{pod_name}/log")


def condition(api: Api, path: str, *kinds: str, seconds: float = 100) -> str:
    """The first of these conditions that a job has."""

    def look() -> str | None:
        true = [c["type"] for c in api.get(path).get("status", {}).get("conditions", []) if c["status"] == "True"]
        return next((kind for kind in kinds if kind in true), None)

    return wait_for(f"condition {' or '.join(kinds)}", look, seconds)


def container_state(api: Api, pod_name: str) -> Object:
    """The state and the last state of a pod's only container."""
    status = api.get(f"{TEAM}/pods/{pod_name}")["status"]
    found: Object = status.get("containerStatuses", [{}])[0]
    return found


def ended(api: Api, pod_name: str, seconds: float = 60) -> Object:
    """How the pod's only container ended."""
    return wait_for(
        f"end of {pod_name}", lambda: container_state(api, pod_name).get("state", {}).get("terminated"), seconds
    )


def events(api: Api, name: str) -> list[str]:
    """What happened to an object, as `reason: message`."""
    found = api.get(f"{TEAM}/events?fieldSelector=involvedObject.name={name}")["items"]
    return [f"{one['reason']}: {one['message']}" for one in found]


def remove(api: Api, path: str) -> None:
    """Delete what may be there."""
    with contextlib.suppress(ApiError):
        api.delete(path)
