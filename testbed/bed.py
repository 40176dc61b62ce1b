"""A test bed from outside: start it, ask it, end it."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from testbed import guard
from testbed.api import Api, wait_for
from testbed.certificates import make_certificates
from testbed.configuration import kubeconfig as kubeconfig_of
from testbed.configuration import write_configuration
from testbed.errors import BedError
from testbed.layout import LAST_NUMBER, NODE, Layout, layout
from testbed.operators import chosen, install, wait_until_ready
from testbed.parts import check_built, check_machine, copy_images, snapshotter
from testbed.places import REPOSITORY, beds
from testbed.programs import program
from testbed.users import PEOPLE, SERVICE_ACCOUNT, TEAMS, namespace, team_objects

Found = TypeVar("Found")

STARTING = 60.0  # seconds for the control plane
ENDING = 40.0


class Bed:
    """One running cluster.

    with Bed.start(operators=("training",)) as bed:
        bed.api("alice").get("/api/v1/namespaces/team-a/pods")
    """

    def __init__(self, place: Layout) -> None:
        self.place = place
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = -1

    @classmethod
    def start(cls, *, kubelet: bool = True, operators: tuple[str, ...] = (), detached: bool = False) -> Self:
        """A new test bed, ready to use; it ends with this process unless it is detached."""
        chosen(operators)
        check_machine()
        check_built()
        sweep()
        place, lock = _reserve()
        bed = cls(place)
        try:
            bed._prepare(kubelet)
            bed._guard(lock, kubelet, detached)
            bed._fill(kubelet, operators)
        except BaseException:
            bed.stop()
            if guard.is_ours(place, lock):
                guard.remove(place)
            raise
        finally:
            os.close(lock)
        return bed

    def stop(self) -> None:
        """End it; nothing of it is left."""
        guards = _guards(self.place) or ([self.process.pid] if self.process else [])
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(guards[0], signal.SIGTERM)
        deadline = time.monotonic() + ENDING
        while any(map(self._runs, guards)) and time.monotonic() < deadline:
            time.sleep(0.05)
        sweep()
        if self.owner >= 0:
            os.close(self.owner)
            self.owner = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def kubeconfig(self, user: str = "admin", way: str = "") -> Path:
        """The kubeconfig of a user; the way is a certificate (""), "token" or "exec"."""
        path = self.place.kubeconfig(user, way)
        if not path.exists():
            names = ", ".join([*(person.name for person in PEOPLE), SERVICE_ACCOUNT.name])
            raise BedError(f"there is no kubeconfig {path.name!r}", f"there are {names}, with token or exec")
        return path

    def api(self, user: str = "admin", way: str = "") -> Api:
        """The API server as this user sees it."""
        return Api(self.kubeconfig(user, way))

    def kubectl(self, *words: str, user: str = "admin", given: str | None = None, check: bool = True) -> str:
        """What a real kubectl says."""
        done = subprocess.run(
            [str(program("kubectl")), *words],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig(user))},
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise BedError(f"kubectl {' '.join(words)}", done.stderr.strip())
        return done.stdout + done.stderr if not check else done.stdout

    def wait(self, what: str, probe: Callable[[], Found | None], seconds: float = 60) -> Found:
        """What the probe finds at last."""
        return wait_for(what, probe, seconds)

    def _prepare(self, kubelet: bool) -> None:
        make_certificates(self.place)
        write_configuration(self.place, snapshotter())
        if kubelet:
            copy_images(self.place.folder / "containerd")

    def _guard(self, lock: int, kubelet: bool, detached: bool) -> None:
        ours, owner = (-1, -1) if detached else os.pipe()
        options = [] if kubelet else ["--no-kubelet"]
        words = [str(self.place.folder), str(self.place.number), str(lock), str(ours), *options]
        with (self.place.logs / "guard.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "testbed.guard", *words],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
                pass_fds=[fd for fd in (lock, ours) if fd >= 0],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.owner = owner  # open as long as this process lives
        if ours >= 0:
            os.close(ours)

    def _fill(self, kubelet: bool, operators: tuple[str, ...]) -> None:
        api = self.api()
        self._until("API server", lambda: api.text("/readyz") == "ok")
        for team in TEAMS:
            api.post("/api/v1/namespaces", namespace(team))
        for team in TEAMS:
            for thing in team_objects(team):
                api.post(_collection(thing), thing)
        self._write_service_account()
        install(self, operators, pods=kubelet)
        for team in ("default", *TEAMS):
            self._until("account 'default'", lambda team=team: api.get(_account(team, "default")))  # type: ignore[misc]
        if kubelet:
            self._until("ready node", self._node_is_ready)
            wait_until_ready(self, operators)

    def _runs(self, pid: int) -> bool:
        if self.process and self.process.pid == pid:
            return self.process.poll() is None
        return Path(f"/proc/{pid}").exists()

    def _write_service_account(self) -> None:
        """The kubeconfig of the service account, with a token that the API server made."""
        user = SERVICE_ACCOUNT
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}
        path = _account(user.namespace, user.name) + "/token"
        answer = self._until("token", lambda: self.api().post(path, asked))
        secret = {"token": answer["status"]["token"]}
        file = self.place.kubeconfig(user.name)
        file.write_text(json.dumps(kubeconfig_of(self.place, user, secret)))
        file.chmod(0o600)

    def _node_is_ready(self) -> bool:
        conditions = self.api().get(f"/api/v1/nodes/{NODE}")["status"].get("conditions", [])
        return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)

    def _until(self, what: str, probe: Callable[[], Found | None]) -> Found:
        def probe_alive() -> Found | None:
            if not is_alive(self.place):
                raise BedError(f"the test bed ended while it started: {_last_line(self.place)}", str(self.place.logs))
            return probe()

        return wait_for(what, probe_alive, STARTING)


def running() -> list[Bed]:
    """The test beds that live, in the order of their numbers."""
    return [Bed(place) for place in _folders() if is_alive(place)]


def is_alive(place: Layout) -> bool:
    """Whether someone holds the test bed's lock."""
    lock = _grab(place.lock)
    if lock is None:
        return place.lock.exists()
    os.close(lock)
    return False


def sweep() -> list[int]:
    """Remove what killed runs left; their numbers."""
    stale = []
    for place in _folders():
        lock = _grab(place.lock)
        if lock is None and place.lock.exists():
            continue
        if lock is None or guard.is_ours(place, lock):
            guard.remove(place)
            stale.append(place.number)
        if lock is not None:
            os.close(lock)
    _sweep_hidden()
    return stale


def _sweep_hidden() -> None:
    """Folders that were being made or removed when their process was killed."""
    long_ago = time.time() - 600
    for folder in beds().glob(".*"):
        with contextlib.suppress(FileNotFoundError):
            if folder.stat().st_mtime < long_ago:
                shutil.rmtree(folder, ignore_errors=True)


def _grab(lock: Path) -> int | None:
    """The lock, if nobody holds it."""
    try:
        held = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        return None
    return held


def _folders() -> list[Layout]:
    if not beds().exists():
        return []
    return [layout(number) for number in sorted(int(f.name) for f in beds().iterdir() if f.name.isdecimal())]


def _reserve() -> tuple[Layout, int]:
    """The next free number, and the lock that says it is taken."""
    beds().mkdir(parents=True, exist_ok=True)
    for number in _numbers():
        place = layout(number)
        with contextlib.suppress(FileExistsError):
            if not place.is_taken:
                lock = _make_folder(place)
                _given().write_text(str(number))
                return place, lock
    raise BedError(f"{LAST_NUMBER} test beds run already", "python -m testbed down --all")


def _numbers() -> list[int]:
    """All numbers, those first that were given longest ago: who asks whether one is gone must not find its heir."""
    try:
        last = int(_given().read_text())
    except (FileNotFoundError, ValueError):
        last = 0
    return [*range(last + 1, LAST_NUMBER + 1), *range(1, last + 1)]


def _given() -> Path:
    """Where the last number stands that was given."""
    return beds().with_name("given")


def _make_folder(place: Layout) -> int:
    """The folder appears with its lock held: nobody may take it for one that a killed run left."""
    hidden = place.folder.with_name(f".{place.number}-{os.getpid()}")
    hidden.mkdir(mode=0o700)
    lock = os.open(hidden / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        os.rename(hidden, place.folder)
    except OSError as error:
        os.close(lock)
        shutil.rmtree(hidden)
        raise FileExistsError(place.folder) from error
    return lock


def _guards(place: Layout) -> list[int]:
    """The keeper and its twin; none before they have begun and after they have ended."""
    try:
        return [int(word) for word in (place.folder / "guard.pid").read_text().split()]
    except FileNotFoundError:
        return []


def _last_line(place: Layout) -> str:
    lines = (place.logs / "guard.log").read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _account(team: str, name: str) -> str:
    return f"/api/v1/namespaces/{team}/serviceaccounts/{name}"


def _collection(thing: dict[str, Any]) -> str:
    """Where the objects of a kind are created; enough for what `users` makes."""
    version, team = thing["apiVersion"], thing["metadata"]["namespace"]
    root = "/api" if version == "v1" else "/apis"
    return f"{root}/{version}/namespaces/{team}/{thing['kind'].lower()}s"
