"""`arena list -w` on a real API server: what changes is told, and nobody is asked meanwhile."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from testbed.faults import Fault, FaultProxy

import arena
from arena.backends.base import Query
from arena.backends.kubernetes.watching import Board
from arena.engines import load
from arena.status import Seen
from calm import calm
from cluster.spaces import Space

pytestmark = pytest.mark.cluster


def job(name: str) -> dict[str, Any]:
    """A Job that others made."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


def client(space: Space, **env: str) -> arena.Client:
    return arena.Client(backend="kubernetes", env={**space.cli.env, **env})


def named(changes: Iterator[list[Seen]], *names: str) -> float:
    """How long it took until the jobs were these."""
    begun = calm()
    assert any({seen.name for seen in seens} == {*names} for seens in changes)
    return calm() - begun


def settled(proxy: FaultProxy) -> int:
    """How many requests there were when no more came for a while."""
    deadline, before = time.monotonic() + 60, -1
    while (now := len(proxy.requests())) != before:
        assert time.monotonic() < deadline, proxy.requests()[-20:]
        before = now
        time.sleep(2)
    return now


def test_changes_come_at_once_and_nobody_is_asked_again_and_again(space: Space, proxy: FaultProxy) -> None:
    changes = client(space).changes(Query())
    assert [next(changes), next(changes)] == [[], []]
    asked = settled(proxy)
    streams = [request.path.partition("?")[0] for request in proxy.requests(path="watch=true")]
    assert len(streams) == len(set(streams))
    space.apply(job("a"), job("b"))
    assert named(changes, "a", "b") < 2
    space.kubectl("delete", "job", "a")
    assert named(changes, "b") < 2
    assert len(proxy.requests()) == asked


class MistakenReader:
    """Stands for a reader with a mistake in it."""

    def path(self, engine: object) -> str:
        raise ValueError(f"a mistake about {engine}")


def test_a_mistake_in_a_watch_ends_the_waiting() -> None:
    with Board(MistakenReader(), [load("job")]) as board, pytest.raises(ValueError, match="a mistake"):  # type: ignore[arg-type]
        board.wait(0)


def test_everywhere_is_where_one_may_look(space: Space, proxy: FaultProxy) -> None:
    space.apply(job("a"))
    mine = client(space, KUBECONFIG=str(space.without("secrets")))
    changes = mine.changes(Query(everywhere=True))
    named(changes, "a")
    assert "only namespace" in mine.warnings.lines[0]
    space.apply(job("b"))
    named(changes, "a", "b")
    everywhere = client(space).changes(Query(everywhere=True))
    assert any(seen.name == "b" and seen.namespace == space.name for seen in next(everywhere))


def test_what_may_not_be_read_is_left_out_and_said(space: Space) -> None:
    space.apply(job("a"))
    blind = client(space, KUBECONFIG=str(space.without("pods")))
    changes = blind.changes(Query())
    named(changes, "a")
    space.apply(job("b"))
    named(changes, "a", "b")
    assert "pods are left out" in str(blind.warnings.lines)
    with pytest.raises(arena.ForbiddenError):
        next(client(space, KUBECONFIG=str(space.as_user("nobody"))).changes(Query()))


def test_a_watch_that_is_refused_is_said_and_one_that_is_cut_goes_on(space: Space, proxy: FaultProxy) -> None:
    space.apply(job("a"))
    proxy.add(Fault(path=r"/pods\?.*watch=true", status=403))
    proxy.add(Fault(path=r"/jobs\?.*watch=true", cut=0, times=2))
    one = client(space)
    changes = one.changes(Query())
    named(changes, "a")
    space.apply(job("b"))
    named(changes, "a", "b")
    while not one.warnings.lines:
        next(changes)
    assert "pods are left out" in str(one.warnings.lines)


def test_the_table_is_printed_again(space: Space) -> None:
    watching = space.cli.start("-b", "kubernetes", "list", "-w", "-o", "name")
    assert watching.stdout
    space.apply(job("a"))
    assert watching.stdout.readline() == "a\n"
    space.kubectl("delete", "job", "a")
    space.apply(job("b"))
    assert watching.stdout.readline() == "b\n"
    watching.terminate()
    watching.communicate(timeout=20)
