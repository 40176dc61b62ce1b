"""A proxy before the test bed that fails on request, and clients that go through it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed.bed import Bed
from testbed.faults import FaultProxy

from arena.kube.api import Api
from arena.kube.config import Access, find


def access(kubeconfig: Path) -> Access:
    """What a kubeconfig says."""
    found = find(kubeconfig=str(kubeconfig), env=os.environ, home=None)
    assert found
    return found


@pytest.fixture
def proxy(bed: Bed) -> Iterator[FaultProxy]:
    with FaultProxy(bed) as started:
        yield started


@pytest.fixture
def connect() -> Iterator[Callable[..., Api]]:
    """Clients that are closed at the end."""
    made: list[Api] = []

    def connect(kubeconfig: Path, **more: object) -> Api:
        made.append(Api(access(kubeconfig), **more))  # type: ignore[arg-type]
        return made[-1]

    yield connect
    for api in made:
        api.close()


@pytest.fixture
def alice(proxy: FaultProxy, connect: Callable[..., Api]) -> Api:
    """Alice, through the proxy."""
    return connect(proxy.kubeconfig("alice"))
