"""A thousand kills at random moments, one victim at a time; and supervisor and keepers together, fifty times.

ARENA_KILLS=50 makes it shorter, ARENA_SEED=… repeats a run.
"""

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from arena import State
from arena.client import Handle
from backends.place import LocalPlace, sh, until
from local.victims import client, folder, keepers, kill_all, marked, nothing_left, supervisor

KILLS = int(os.environ.get("ARENA_KILLS") or 1000)
TOGETHER = max(1, KILLS // 20)
SEED = int(os.environ.get("ARENA_SEED") or time.time())
SIDE_BY_SIDE = 8
VICTIMS = {"submitter": 2, "reader": 2, "replica": 1, "supervisor": 12, "keeper": 2}
REPLICA = "for i in $(seq $N); do echo $i; sleep 0.02; done; exit $CODE"


@pytest.fixture
def seed() -> int:
    print(f"ARENA_SEED={SEED}")
    return SEED


class One:
    """One job and what was killed of it."""

    def __init__(self, place: LocalPlace, choice: random.Random) -> None:
        self.place = place
        self.choice = choice
        self.code = choice.choice((0, 0, 3, 42))
        self.killed: list[str] = []
        self.others: list[subprocess.Popen[str]] = []

    def live(self) -> int:
        """Submit, kill one thing after another, judge; how many were killed."""
        self.job = self._submit()
        while not self.job.where.get(self.job.ref).state.final:
            time.sleep(self.choice.uniform(0.0, 0.05))
            self._kill(self.choice.choices([*VICTIMS], [*VICTIMS.values()])[0])
        self._judge()
        for other in self.others:
            other.kill()
            other.communicate()
        return len(self.killed)

    def _submit(self) -> Handle:
        env = {"CODE": str(self.code), "N": str(self.choice.randrange(1, 60))}
        name = f"j-{self.choice.randrange(1 << 40):x}"
        fields = {"workers": self.choice.choice((1, 2)), "env": env, "name": name}
        words = sh(REPLICA)
        if self.choice.random() < 0.2:
            code = f"job = client.run({words!r}, **{fields!r}); print('there', flush=True); job.wait()"
            submitter = self._other(code)
            assert submitter.stdout
            submitter.stdout.readline()
            return self.place.client().get(name)
        return self.place.run(words, **fields)

    def _other(self, code: str) -> "subprocess.Popen[str]":
        other = client(self.place.env, self.place.cwd, code, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.others.append(other)
        return other

    def _kill(self, kind: str) -> None:
        """One of this kind, if there is one; noted before it dies, so that nothing of it goes unexplained."""
        pids = list(self._victims(kind))
        if kind in ("supervisor", "keeper") and not pids:
            return
        if kind == "reader" and not pids:
            self._other(f"[print(x.text, flush=True) for x in client.get({self.job.name!r}).logs(follow=True)]")
            return
        if pids:
            self._note_and_kill(kind, self.choice.choice(pids))

    def _victims(self, kind: str) -> Iterator[int]:
        run = folder(self.job)
        if kind in ("submitter", "reader"):
            yield from (other.pid for other in self.others if other.poll() is None)
        elif kind == "replica":
            yield from (
                pid for r in self.job.where.get(self.job.ref).observed.replicas if not r.ended for pid in r.pids
            )
        elif kind == "keeper":
            yield from keepers(run).values()
        elif (pid := supervisor(run)) is not None:
            yield pid

    def _note_and_kill(self, kind: str, pid: int) -> None:
        self.killed.append(kind)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            self.killed.pop()

    def _judge(self) -> None:
        seen = self.job.get()
        told = (seen.name, self.killed, seen.state, seen.reason, seen.exit_code, seen.observed.replicas)
        codes = {r.exit_code for r in seen.observed.replicas}
        lost_allowed = "keeper" in self.killed and "supervisor" in self.killed
        if "replica" not in self.killed and not lost_allowed:
            assert seen.exit_code == self.code, told
            assert seen.state is (State.FAILED if self.code else State.SUCCEEDED), told
            assert not any(r.lost for r in seen.observed.replicas), told
        elif seen.state is State.SUCCEEDED:
            assert self.code == 0, told
            assert codes == {0}, told
        elif seen.reason == "Lost":
            assert lost_allowed, told
            assert seen.exit_code is None, told
        else:
            assert seen.exit_code in (self.code, 137), told
        until(lambda: nothing_left(self.job))


@pytest.mark.kill
@pytest.mark.timeout(600)
def test_random_kills_lose_nothing(place: LocalPlace, seed: int) -> None:
    choice, lock, count = random.Random(seed), threading.Lock(), 0
    place = LocalPlace({**place.env, "ARENA_LOCAL_MAX_REPLICAS": "64"}, place.cwd)

    def lives() -> None:
        nonlocal count
        while count < KILLS:
            with lock:
                one = One(place, random.Random(choice.random()))
            killed = one.live()
            with lock:
                count += killed

    began = time.monotonic()
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for done in [pool.submit(lives) for _ in range(SIDE_BY_SIDE)]:
            done.result()
    print(f"{count} kills in {time.monotonic() - began:.0f} s")
    assert count >= KILLS


@pytest.mark.kill
@pytest.mark.timeout(600)
def test_supervisor_and_keepers_together_leave_only_lost_jobs(place: LocalPlace, seed: int) -> None:
    choice = random.Random(seed)

    def live(one: random.Random) -> None:
        job = place.run(sh(REPLICA), workers=2, env={"CODE": "3", "N": "1000"})
        until(lambda: all(r.pids for r in job.where.get(job.ref).observed.replicas))  # before, nothing can be lost
        time.sleep(one.uniform(0.0, 0.3))
        kill_all(job)
        seen = place.client().get(job.name).wait(60)
        ends = [(seen.state, seen.reason, seen.exit_code), *((r.lost, r.exit_code) for r in seen.observed.replicas)]
        assert (seen.state, seen.reason, seen.exit_code) == (State.FAILED, "Lost", None), ends
        assert not marked(job)
        until(lambda: nothing_left(job))

    with ThreadPoolExecutor(SIDE_BY_SIDE // 2) as pool:
        for done in [pool.submit(live, random.Random(choice.random())) for _ in range(TOGETHER)]:
            done.result()
