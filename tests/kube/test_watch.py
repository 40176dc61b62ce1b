"""A watch loses nothing and repeats nothing, whatever happens on the way."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct
from testbed.bed import Bed
from testbed.faults import Fault, FaultProxy

from arena.errors import BackendError, ForbiddenError
from arena.kube.api import Api
from arena.kube.errors import CutError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

MAPS = "/api/v1/namespaces/team-a/configmaps"
Connect = Callable[..., Api]


class Meta(Struct):
    name: str


class Thing(Struct):
    metadata: Meta


def config_map(name: str, group: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"of": group}}}


@pytest.fixture
def direct(bed: Bed, connect: Connect) -> Api:
    return connect(bed.kubeconfig("alice"))


def change(api: Api, name: str, count: int) -> None:
    """A life of `count` objects: 3 events each."""
    for number in range(count):
        one = f"{name}-{number}"
        api.create(MAPS, config_map(one, name))
        api.patch(f"{MAPS}/{one}", {"data": {"n": str(number)}})
        api.delete(f"{MAPS}/{one}")


def take(api: Api, version: str, name: str, count: int) -> list[tuple[str, str, str]]:
    """The next events, and that none of the next half second repeats one."""
    stop = threading.Event()
    found = []
    for event in api.watch(MAPS, Thing, version=version, labels=f"of={name}", stop=stop):
        found.append((event.type, event.items[0].metadata.name, event.version))
        if len(found) == count:
            threading.Timer(0.5, stop.set).start()
    return found


def test_nothing_is_lost_or_repeated_over_cut_streams(proxy: FaultProxy, alice: Api, direct: Api, name: str) -> None:
    version, over = direct.list(MAPS, dict).version, threading.Event()

    def cut() -> None:
        pause = 0.07
        while not over.wait(pause):
            proxy.cut_streams()
            pause *= 1.05  # a busy machine needs longer for a connection

    threads = [threading.Thread(target=cut), threading.Thread(target=change, args=(direct, name, 40))]
    for thread in threads:
        thread.start()
    found = take(alice, version, name, 120)
    over.set()
    for thread in threads:
        thread.join()
    assert found == take(direct, version, name, 120)
    assert len(set(found)) == 120
    assert len(proxy.requests(path="watch=true")) > 3, "the streams were not cut"


def test_a_cut_in_the_middle_of_a_line(proxy: FaultProxy, alice: Api, direct: Api, name: str) -> None:
    version = direct.list(MAPS, dict).version
    change(direct, name, 3)
    for cut in (100, 700, 1300):
        proxy.add(Fault(path="watch=true", cut=cut, times=1))
    found = take(alice, version, name, 9)
    assert found == take(direct, version, name, 9)
    assert len(proxy.requests(path="watch=true")) == 4


def test_a_forgotten_version_brings_all_there_is(proxy: FaultProxy, alice: Api, direct: Api, name: str) -> None:
    direct.create(MAPS, config_map(name, name))
    version = direct.list(MAPS, dict).version
    proxy.add(Fault(path="watch=true", status=410, times=1))
    stop = threading.Event()
    events = alice.watch(MAPS, Thing, version=version, labels=f"of={name}", stop=stop)
    first = next(events)
    assert (first.type, [one.metadata.name for one in first.items]) == ("RELISTED", [name])
    direct.delete(f"{MAPS}/{name}")
    second = next(events)
    assert (second.type, second.items[0].metadata.name) == ("DELETED", name)
    stop.set()
    assert list(events) == []


def test_without_a_version_it_begins_with_all_there_is(alice: Api, direct: Api, name: str) -> None:
    direct.create(MAPS, config_map(name, name))
    first = next(alice.watch(MAPS, Thing, version="", labels=f"of={name}"))
    assert (first.type, [one.metadata.name for one in first.items]) == ("RELISTED", [name])


def test_a_server_in_trouble_is_waited_for(proxy: FaultProxy, alice: Api, direct: Api, name: str) -> None:
    version = direct.list(MAPS, dict).version
    events = alice.watch(MAPS, Thing, version=version, labels=f"of={name}")
    direct.create(MAPS, config_map(name, name))
    assert next(events).type == "ADDED"
    proxy.add(Fault(path="watch=true", status=500, times=2))
    proxy.add(Fault(path="watch=true", status=429, retry_after=1, times=1))
    proxy.cut_streams()
    direct.delete(f"{MAPS}/{name}")
    assert next(events).type == "DELETED"


def test_what_cannot_get_better_is_raised(proxy: FaultProxy, alice: Api, direct: Api, name: str) -> None:
    with pytest.raises(ForbiddenError, match="cannot watch"):
        next(alice.watch("/api/v1/nodes", dict, version="0"))
    proxy.add(Fault(path="watch=true", status=500, times=1))
    with pytest.raises(BackendError, match="the fault proxy says"):
        next(alice.watch(MAPS, dict, version="0"))

    class Wrong(Struct):
        metadata: int

    version = direct.list(MAPS, dict).version
    direct.create(MAPS, config_map(name, name))
    with pytest.raises(BackendError, match="not understood"):
        next(alice.watch(MAPS, Wrong, version=version, labels=f"of={name}"))


def timed(act: Callable[[], object], stop: Callable[[], object]) -> float:
    """Seconds from the stop to the end."""
    thread = threading.Thread(target=act)
    thread.start()
    time.sleep(0.5)
    assert thread.is_alive()
    began = time.monotonic()
    stop()
    thread.join(10)
    assert not thread.is_alive()
    return time.monotonic() - began


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("what", ["watch", "lines"])
def test_it_ends_at_once_also_while_nothing_comes(
    proxy: FaultProxy, alice: Api, name: str, silent: bool, what: str
) -> None:
    if silent:
        proxy.silence(after_writes=0)

    def once() -> float:
        stop, query = threading.Event(), {"watch": "true", "follow": "true", "labelSelector": f"of={name}"}
        watch = alice.watch(MAPS, Thing, version="0", labels=f"of={name}", stop=stop)
        listen = watch if what == "watch" else alice.lines(MAPS, stop=stop, **query)
        return timed(lambda: list(listen), stop.set)

    assert min(once() for _ in range(3)) < 1  # of three: the machine may be busy
    nobody_is_to_be_ended()


def nobody_is_to_be_ended() -> None:
    """No thread looks for streams to be ended, any more."""
    deadline = time.monotonic() + 10
    while "arena-kube-stops" in (names := [thread.name for thread in threading.enumerate()]):
        assert time.monotonic() < deadline, names
        time.sleep(0.02)


def test_a_stop_that_is_set_already(alice: Api) -> None:
    stop = threading.Event()
    stop.set()
    assert list(alice.watch(MAPS, Thing, version="0", stop=stop)) == []
    assert list(alice.lines("/readyz", stop=stop)) == []


def test_a_closed_client_ends_its_streams(alice: Api, name: str) -> None:
    watch = alice.watch(MAPS, Thing, version="0", labels=f"of={name}")
    assert timed(lambda: list(watch), alice.close) < 5
    with pytest.raises(BackendError, match="was closed"):
        alice.get(MAPS)


def test_a_watch_that_nobody_reads_holds_nothing(alice: Api, direct: Api, name: str) -> None:
    watch = alice.watch(MAPS, Thing, version="", labels=f"of={name}", stop=threading.Event())
    assert next(watch).items == []
    direct.create(MAPS, config_map(name, name))
    assert next(watch).type == "ADDED"  # now a stream is open, and its reader goes away
    alice.close()
    nobody_is_to_be_ended()
    assert list(watch) == []


def test_lines_of_a_cut_answer(proxy: FaultProxy, alice: Api) -> None:
    proxy.add(Fault(cut=100))
    found: list[bytes] = []
    with pytest.raises(CutError, match="was cut"):
        found.extend(alice.lines("/readyz?verbose=true"))
    assert b"\n".join(found).startswith(b"[+]ping ok\n[+]log ok\n")
    assert all(line.endswith(b" ok") for line in found), "half a line is no line"
