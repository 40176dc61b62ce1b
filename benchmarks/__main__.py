"""Print the table; ends with 1 where a budget is not kept. Under two minutes."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import arena
from benchmarks.measure import Figure, cpu, first_line, in_turns
from benchmarks.records import fill

BARE = "python -c pass"
RECORDS = 5_000
JOBS = 200
REPLICAS, LINES = 16, 100_000
TORCHRUN = Path(".frameworks/bin/torchrun")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("ARENA_", "PYTHON"))}
        env |= {"HOME": folder, "ARENA_STATE_DIR": f"{folder}/state", "ARENA_BACKEND": "local"}
        env["KUBECONFIG"] = ""
        print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
        print(f"{'':46} {'ours':>12}   {'ratio':>6}   {'instead':38} budget")
        kept = True
        for part in (commands, starts, changes, torchrun, records, lines, crowd):
            for figure in part(env, Path(folder)):
                show(figure)
                kept = kept and figure.kept
    return 0 if kept else 1


def show(figure: Figure) -> None:
    """One line of the table."""
    ratio = f"{figure.ratio:.2f}" if figure.ratio else ""
    peer = f"{figure.peer} {figure.peer_value:,.0f}" if figure.peer_value else ""
    limits = [f"{'from' if figure.rate else 'to'} {figure.limit:,.0f}"] if figure.limit is not None else []
    limits += [f"{figure.most:g} x"] if figure.most is not None else []
    mark = "" if figure.kept else "   OVER"
    print(f"{figure.what:46} {figure.value:9,.0f} {figure.unit:5} {ratio:>6}   {peer:38} {', '.join(limits)}{mark}")
    sys.stdout.flush()


def commands(env: dict[str, str], _: Path) -> Iterator[Figure]:
    """CPU of the commands that must answer at once, and of the import."""
    program = str(Path(sys.executable).with_name("arena"))
    complete = {**env, "_ARENA_COMPLETE": "bash_complete", "COMP_WORDS": "arena li", "COMP_CWORD": "1"}
    found = in_turns(
        15,
        bare=lambda: cpu([sys.executable, "-c", "pass"], env),
        click=lambda: cpu([sys.executable, "-c", "import click"], env),
        help=lambda: cpu([program, "--help"], env),
        version=lambda: cpu([program, "version"], env),
        completion=lambda: cpu([program], complete),
        library=lambda: cpu([sys.executable, "-c", "import arena"], env),
    )
    bare = found["bare"]
    yield Figure("python -c 'import click', CPU", found["click"], "ms", BARE, bare)
    for name, what in (("help", "arena --help"), ("version", "arena version"), ("completion", "completion of a word")):
        yield Figure(f"{what}, CPU", found[name], "ms", BARE, bare, limit=70, most=6)
    yield Figure("import arena, CPU", found["library"], "ms", BARE, bare, limit=60)


def starts(env: dict[str, str], folder: Path) -> Iterator[Figure]:
    """From the submit to the first line, beside the command's own."""
    client = arena.Client(backend="local", env=env, cwd=folder)
    words = ["sh", "-c", "echo first"]

    def ours() -> float:
        began = time.monotonic()
        job = client.run(words)
        next(iter(job.logs(follow=True)))
        took = (time.monotonic() - began) * 1000
        job.wait()
        return took

    found = in_turns(11, ours=ours, itself=lambda: first_line(words, env))
    over = found["ours"] - found["itself"]
    yield Figure("submit to first line, over the command's own", over, "ms", "sh -c", found["itself"], limit=150)


def changes(env: dict[str, str], folder: Path) -> Iterator[Figure]:
    """From the end of the program to the return of `wait`."""
    client = arena.Client(backend="local", env=env, cwd=folder)

    def ours() -> float:
        job = client.run(["sh", "-c", "sleep 0.3; date +%s.%N"])
        job.wait()
        ended = time.time()
        return (ended - float(next(iter(job.logs())).text)) * 1000

    yield Figure("end of the program to the return of wait", in_turns(7, ours=ours)["ours"], "ms", limit=300)


def torchrun(env: dict[str, str], folder: Path) -> Iterator[Figure]:
    """Two ranks that say hello, beside torchrun, where it is installed."""
    script = folder / "hello.py"
    script.write_text("import os\nprint('hello', os.environ['RANK'])\n")
    program = str(Path(sys.executable).with_name("arena"))
    measures = {"ours": lambda: first_line([program, "run", "-w", "2", str(script)], env)}
    if TORCHRUN.exists():
        measures["theirs"] = lambda: first_line([str(TORCHRUN), "--nproc-per-node", "2", str(script)], env)
    found = in_turns(3, **measures)
    theirs = found.get("theirs")
    yield Figure("arena run -w 2 hello.py to its first line", found["ours"], "ms", "torchrun", theirs, most=1)


def records(env: dict[str, str], folder: Path) -> Iterator[Figure]:
    """CPU of a list of thousands of recorded runs."""
    env = {**env, "ARENA_STATE_DIR": str(folder / "records")}
    fill(env, RECORDS)
    program = str(Path(sys.executable).with_name("arena"))
    client = arena.Client(backend="local", env=env)

    def library() -> float:
        began = time.process_time()
        assert len(client.list()) == RECORDS
        return (time.process_time() - began) * 1000

    found = in_turns(5, command=lambda: cpu([program, "list"], env), library=library)
    yield Figure(f"arena list of {RECORDS:,} recorded runs, CPU", found["command"], "ms", limit=300)
    yield Figure(f"Client.list() of {RECORDS:,} recorded runs, CPU", found["library"], "ms")


def lines(env: dict[str, str], folder: Path) -> Iterator[Figure]:
    """Lines a second from many replicas that write as quickly as they can, beside the same programs in one pipe."""
    words = [sys.executable, "-IS", "-c", f"for i in range({LINES}): print(i)"]
    client = arena.Client(backend="local", env=env, cwd=folder)
    began = time.monotonic()
    job = client.run(words, workers=REPLICAS)
    count = sum(1 for _ in job.logs(follow=True))
    ours = count / (time.monotonic() - began)
    assert count == REPLICAS * LINES, count
    job.wait(check=True)
    began = time.monotonic()
    everyone = " & ".join([f"'{words[0]}' -IS -c '{words[3]}'"] * REPLICAS)
    direct = subprocess.run(["sh", "-c", f"({everyone} & wait) | wc -l"], env=env, capture_output=True, check=True)
    theirs = int(direct.stdout) / (time.monotonic() - began)
    what = f"follow {REPLICAS} x {LINES:,} lines, a second"
    yield Figure(what, ours, "lines", "into one pipe", theirs, limit=50_000, rate=True)


def crowd(env: dict[str, str], folder: Path) -> Iterator[Figure]:
    """Wall time of many jobs submitted at once."""
    client = arena.Client(backend="local", env=env, cwd=folder)
    program = [sys.executable, "-IS", "-c", "pass"]
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda _: client.run(program, workers=2), range(JOBS)))
    assert all(job.wait().exit_code == 0 for job in jobs)
    ours = time.monotonic() - began
    began = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: subprocess.run(program, env=env, check=True), range(2 * JOBS)))
    theirs = time.monotonic() - began
    yield Figure(f"{JOBS} jobs of two replicas at once, wall", ours, "s", f"{2 * JOBS} processes, 16 at a time", theirs)


if __name__ == "__main__":
    sys.exit(main())
