"""Code that the pods fetch themselves from a real rsync daemon, by an init container of the job's own image."""

import json

import pytest
from testbed.images import BARE, WORK

from cluster.spaces import Space

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(180)]

SERVE = r"""
mkdir -p /srv/sample
printf 'import os, sys\nprint(os.getcwd(), os.environ["RANK"], sys.argv[1])\n' > /srv/sample/train.py
printf '[project]\npath = /srv\nuse chroot = false\n' > /etc/rsyncd.conf
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


def test_every_worker_fetches_what_it_runs(alive: Space, server: str) -> None:
    source = ("--sync-mode", "rsync", "--sync-source", f"rsync://{server}/project/sample")
    program = ("python3", "/root/code/sample/train.py", "--lr")
    ran = alive.cli("run", "--name", "a", "-w", "2", *source, "--", *program)
    assert ran.exit_code == 0, ran.stderr
    assert sorted(line.split()[-2:] for line in ran.stdout.splitlines()) == [["0", "--lr"], ["1", "--lr"]]
    spec = json.loads(alive.kubectl("get", "job", "a", "-o", "json"))["spec"]["template"]["spec"]
    assert [one["image"] for one in spec["initContainers"] if one["name"] == "init-code"] == [WORK]


def test_arena_go_s_flags_put_it_below_the_working_folder(alive: Space, server: str) -> None:
    words = ("submit", "pytorch", "--name", "a", "--syncMode=rsync", f"--syncSource=rsync://{server}/project/sample")
    ran = alive.cli(*words, "--wait", "python3 code/sample/train.py --lr")
    assert ran.exit_code == 0, ran.stderr
    assert alive.cli("logs", "a").stdout == "/root 0 --lr\n"


def test_what_is_not_served_is_told(alive: Space, server: str) -> None:
    words = ("run", "--name", "a", "--sync-mode", "rsync", "--sync-source", f"rsync://{server}/nosuch")
    ran = alive.cli(*words, "--start-timeout", "60s", "--", "true")
    assert ran.exit_code != 0, ran.stderr
    why = alive.cli("why", "a", "-o", "json").json
    assert why["cause"] == "InitContainer", why
    assert "Unknown module 'nosuch'" in " ".join([why["text"], *why["evidence"]])


def test_an_image_without_rsync_is_told(alive: Space) -> None:
    words = ("run", "--name", "a", "--image", BARE, "--sync-mode", "rsync", "--sync-source", "rsync://nowhere/code")
    assert alive.cli(*words, "--start-timeout", "20s", "--", "true").exit_code != 0
    why = alive.cli("why", "a", "-o", "json").json
    assert (why["cause"], why["text"].endswith("rsync: not found")) == ("InitContainer", True), why
