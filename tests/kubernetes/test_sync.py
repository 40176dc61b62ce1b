"""Code that the pods fetch themselves from a real rsync daemon, by an init container of the job's own image."""

import json
from typing import Any

import pytest
from testbed.images import BARE, WORK

from cli.conftest import Result
from cluster.spaces import Space

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(180)]

RELATIVE = ("python3", "code/sample/train.py", "--lr")
CLOSED = 9  # a port where nothing listens
SERVE = r"""
mkdir -p /srv/sample
printf 'import os, sys\nprint(os.getcwd(), os.environ["RANK"], sys.argv[1])\n' > /srv/sample/train.py
printf '[project]\npath = /srv\nuse chroot = false\n' > /etc/rsyncd.conf
printf '[private]\npath = /srv\nuse chroot = false\nauth users = u\nsecrets file = /etc/secrets\n' >> /etc/rsyncd.conf
echo u:open-sesame > /etc/secrets && chmod 600 /etc/secrets
exec rsync --daemon --no-detach
"""


@pytest.fixture
def server(alive: Space) -> str:
    """The address of a daemon that serves a project."""
    main = {"name": "rsync", "image": WORK, "command": ["sh", "-c", SERVE]}
    probe = {"tcpSocket": {"port": 873}, "periodSeconds": 1}
    spec = {"containers": [{**main, "readinessProbe": probe}], "terminationGracePeriodSeconds": 0}
    alive.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rsync"}, "spec": spec})
    alive.kubectl("wait", "--for=condition=Ready", "pod/rsync", "--timeout=60s")
    return alive.kubectl("get", "pod", "rsync", "-o", "jsonpath={.status.podIP}")


def run(alive: Space, source: str, *words: str) -> Result:
    return alive.cli("run", "--name", "a", "--sync-mode", "rsync", "--sync-source", source, *words)


def init_code(alive: Space) -> Any:
    """The container that fetches the code."""
    spec = json.loads(alive.kubectl("get", "job", "a", "-o", "json"))["spec"]["template"]["spec"]
    return next(one for one in spec["initContainers"] if one["name"] == "init-code")


def not_fetched(alive: Space, *words: str) -> None:
    """The one cause is that the code did not come, in these words."""

    def look() -> Any:
        found = alive.cli("why", "a", "-o", "json").json
        return found if found["cause"] == "InitContainer" else None

    why = alive.cli.until(look)
    assert [word for word in ("could not be fetched", *words) if word not in why["text"]] == [], why
    assert "--sync-source" in why["next"]


@pytest.mark.parametrize("engine", ["job", "trainjob"])
def test_every_worker_fetches_what_it_runs(alive: Space, server: str, engine: str) -> None:
    alive.cli.env["ARENA_ENGINES"] = engine
    ran = run(alive, f"rsync://{server}/project/sample", "-w", "2", "--", *RELATIVE)
    assert ran.exit_code == 0, ran.stderr
    assert sorted(line.split()[-3:] for line in ran.stdout.splitlines()) == [
        ["/root", "0", "--lr"],
        ["/root", "1", "--lr"],
    ]


def test_arena_go_s_flags_put_it_below_the_working_folder(alive: Space, server: str) -> None:
    words = ("submit", "pytorch", "--name", "a", "--syncMode=rsync", f"--syncSource=rsync://{server}/project/sample")
    ran = alive.cli(*words, "--wait", "python3 code/sample/train.py --lr")
    assert ran.exit_code == 0, ran.stderr
    assert alive.cli("logs", "a").stdout == "/root 0 --lr\n"


def test_another_image_fetches_for_one_that_begins_elsewhere(alive: Space, server: str) -> None:
    words = ("--image", BARE, "--sync-image", WORK, "--", "sh", "-c", "pwd && cd code/sample && echo *")
    ran = run(alive, f"rsync://{server}/project/sample", *words)
    assert (ran.exit_code, ran.stdout) == (0, "/root\ntrain.py\n"), ran.stderr
    assert init_code(alive)["image"] == WORK


def test_who_is_not_root_fetches_what_a_folder_holds(alive: Space, server: str) -> None:
    user = "spec.template.spec.containers[0].securityContext.runAsUser=1000"
    words = ("--working-dir", "/srv", "--set", user, "--", "sh", "-c", "stat -c %u code/train.py")
    ran = run(alive, f"rsync://{server}/project/sample/", *words)
    assert (ran.exit_code, ran.stdout) == (0, "1000\n"), ran.stderr
    assert init_code(alive)["securityContext"] == {"runAsUser": 1000}


def test_a_password_comes_from_the_environment(alive: Space, server: str) -> None:
    words = ("--env", "RSYNC_PASSWORD=open-sesame", "--", *RELATIVE)
    ran = run(alive, f"rsync://u@{server}/private/sample", *words)
    assert ran.exit_code == 0, ran.stderr
    assert "open-sesame" not in alive.kubectl("get", "job", "a", "-o", "json")


def test_what_is_not_served_is_told(alive: Space, server: str) -> None:
    assert run(alive, f"rsync://{server}/nosuch", "--", "true").exit_code == 1
    not_fetched(alive, "Unknown module 'nosuch'")


def test_a_source_that_does_not_answer_is_told(alive: Space, server: str) -> None:
    ran = run(alive, f"rsync://{server}:{CLOSED}/project", "--", "true")
    assert ran.exit_code == 1
    assert "could not be fetched" in ran.stderr
    not_fetched(alive, "Connection refused")


@pytest.mark.parametrize("retry", [(), ("--retry", "1")])
def test_it_is_told_too_when_the_operator_has_deleted_the_pods(alive: Space, server: str, retry: tuple[str]) -> None:
    source = ("--sync-mode", "rsync", "--sync-source", f"rsync://{server}:{CLOSED}/project")
    ran = alive.cli("submit", "pytorch", "--name", "a", "-w", "2", *retry, *source, "--wait", "true")
    assert ran.exit_code == 1, ran.stderr
    not_fetched(alive, "Connection refused")


def test_it_is_told_when_an_operator_waits_on_for_workers_that_failed(alive: Space, server: str) -> None:
    source = ("--sync-mode", "rsync", "--sync-source", f"rsync://{server}:{CLOSED}/project")
    words = ("submit", "mpi", "--name", "a", "-w", "2", *source, "--wait", "--start-timeout", "15s", "true")
    assert alive.cli(*words).exit_code == 125
    not_fetched(alive, "Connection refused")


def test_an_image_without_rsync_is_told(alive: Space) -> None:
    assert run(alive, "rsync://nowhere/code", "--image", BARE, "--", "true").exit_code == 1
    not_fetched(alive, "this image has no rsync: --sync-image names one that has")
