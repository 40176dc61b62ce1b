"""Several processes in one replica: a Python file of `--nproc-per-node K` is started K times by what stands here.

The text travels as an argument of the container's command. Lines come out whole, one after the other; what has no end
yet comes when nobody has said anything for half a second. It ends the others when one fails, and its own code is that
of the one that failed first.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from arena.job import Role

STARTER = """# arena: K processes
import os, selectors, signal, subprocess, sys, time
count, words = int(sys.argv[1]), sys.argv[2:]
env, children, ending, rest, quiet = os.environ, [], [], {}, [0]
pipes = selectors.DefaultSelector()
def end(number=signal.SIGTERM, _=None):
    ending[:] = ending or [time.monotonic() + 10]
    for child in children:
        if child.returncode is None:
            child.send_signal(number)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, end)
for local in range(count):
    own = {"LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(count)}
    for pair in ("RANK WORLD_SIZE", "PROCESS_ID NUM_PROCESSES", "JAX_PROCESS_ID JAX_NUM_PROCESSES"):
        rank, world = pair.split()
        if rank in env and world in env:
            own[rank] = str(int(env[rank]) * count + local)
            own[world] = str(int(env[world]) * count)
    child = subprocess.Popen(words, env={**env, **own}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    children.append(child)
    pipes.register(child.stdout.fileno(), selectors.EVENT_READ)
def write(data):
    while data:
        data = data[os.write(1, data):]
def pump(wait):
    ready = pipes.select(wait)
    quiet[0] = 0 if ready else quiet[0] + 1
    if quiet[0] == 10:
        for fd in list(rest):
            write(rest.pop(fd))
    for key, _ in ready:
        data = os.read(key.fd, 65536)
        if not data:
            pipes.unregister(key.fd)
        lines, newline, tail = (rest.get(key.fd, b"") + data).rpartition(b"\\n")
        whole = not data or len(tail) > 65536
        write(lines + newline + (tail if whole else b""))
        rest[key.fd] = b"" if whole else tail
    return ready
first = 0
while any(child.returncode is None for child in children):
    pump(0.05) if pipes.get_map() else time.sleep(0.05)
    for child in children:
        if child.returncode is None and child.poll() and not first:
            first = child.returncode if child.returncode > 0 else 128 - child.returncode
            ending or end()
    if ending and time.monotonic() > ending[0]:
        end(signal.SIGKILL)
while pipes.get_map() and pump(0):
    pass
for tail in rest.values():
    write(tail)
sys.exit(first)
"""


def started(role: Role) -> Role:
    """The role with what a container runs: its own words, or the starter in front of them.

    >>> started(Role(argv=("python3", "train.py"))).argv
    ('python3', 'train.py')
    >>> started(Role(argv=("python3", "train.py"), nproc=2)).argv[3:]
    ('2', 'python3', 'train.py')
    """
    if role.nproc == 1:
        return role
    return replace(role, argv=(role.argv[0], "-c", STARTER, str(role.nproc), *role.argv))


def processes(command: Sequence[str]) -> int:
    """How many processes a container starts.

    >>> processes(started(Role(argv=("python3", "train.py"), nproc=2)).argv)
    2
    """
    ours = len(command) > 3 and command[1] == "-c" and command[2] == STARTER
    return int(command[3]) if ours and command[3].isdecimal() else 1
