"""`arena wait`."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any

import click

from arena.cli import common

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from arena.client import Client, Handle
    from arena.status import Seen

    Came = tuple[str, Seen | Exception]  # a job, and how it ended or why that is not known

TICK = 0.2


@click.command(
    epilog="""\b
Examples:
  arena wait mnist --timeout 2h            0, the job's own code, or 124 when the time is over
  arena wait mnist --record out/ -o json   its record as files, its end as JSON
  arena wait a b c                         all of them; the code of the first that did not succeed
  arena wait -l sweep=lr                   all my jobs of a label
"""
)
@click.argument("names", nargs=-1, shell_complete=common.complete_names)
@common.type_option()
@click.option(
    "-l", "--selector", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="All my jobs of a label."
)
@common.state_option("All my jobs that are in this state now.")
@click.option("--timeout", metavar="DURATION", help="Give up after 90s, 5m, 2h; the jobs go on (exit 124).")
@click.option("--start-timeout", metavar="DURATION", help="Fail (exit 125) when one is not running after that time.")
@click.option("--record", metavar="DIR", help="Write the run's record to a folder; of several to DIR/NAME.")
@common.output_option("text", "json", "yaml")
@click.pass_context
def wait(ctx: click.Context, /, names: tuple[str, ...], kind: str, record: str, fmt: str, **asked: Any) -> int:
    """Wait until jobs have ended; the exit code is the job's own.

    Of several jobs it is that of the first, in the order of their names here, that did not succeed.
    """
    from arena.cli.signals import Interrupt, Signals

    limits = (common.seconds("--timeout", asked["timeout"]), common.seconds("--start-timeout", asked["start_timeout"]))
    jobs = _jobs(common.client(ctx), names, kind, asked)
    if record:
        _make_folder(record)
    alone = len(names) == 1 and not _selects(asked)
    seens: dict[str, Seen] = {}
    codes: dict[str, int] = {}
    with Signals() as signals:
        try:
            for name, end in _ends(jobs, *limits):
                with signals.hold() as begin:
                    begin()
                    codes[name] = _told(jobs[name], end, as_json=fmt == "json")
                if not isinstance(end, Exception):
                    seens[name] = end
        except Interrupt as stop:
            _say_rest([name for name in jobs if name not in codes])
            return stop.exit_code
    ordered = {name: seens[name] for name in jobs if name in seens}
    if record:
        for name, seen in ordered.items():
            place = record if alone else f"{record}/{name}"
            with common.naming(place):
                write_record(jobs[name], seen, place)
    if fmt != "text":
        _print(ordered.values(), fmt, alone=alone)
    return next((codes[name] for name in jobs if codes[name]), 0)


def _make_folder(path: str) -> None:
    """The folder of the record; that it cannot be written is told before the wait, not after it."""
    import os

    from arena.errors import SpecError

    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise SpecError(f"--record: {path} cannot be written: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise SpecError(f"--record: {path} cannot be written")


def _selects(asked: Mapping[str, Any]) -> bool:
    return bool(asked["labels"] or asked["state"])


def _jobs(client: Client, names: tuple[str, ...], kind: str, asked: Mapping[str, Any]) -> dict[str, Handle]:
    """The jobs by what named them; one that is not there is an error before anything is waited for."""
    from arena.errors import NotFoundError

    if not names and not _selects(asked):
        raise click.UsageError("which jobs? Give names, -l or --state")
    jobs = {word: common.named(client, word, kind, gone=True) for word in dict.fromkeys(names)}
    named = {job.run_id for job in jobs.values()}
    found = [job for job in common.chosen(client, kind, asked["labels"], asked["state"]) if job.run_id not in named]
    if not (jobs or found):
        raise NotFoundError("no job of yours is selected: there is nothing to wait for", hint="arena list --mine")
    return jobs | {_word(job, [*jobs.values(), *found]): job for job in found}


def _word(job: Handle, jobs: Iterable[Handle]) -> str:
    """What a job is called among others: its name, with its type where several have that name."""
    return f"{job.ref.kind}/{job.name}" if [one.name for one in jobs].count(job.name) > 1 else job.name


def _ends(jobs: Mapping[str, Handle], *limits: float | None) -> Iterator[Came]:
    """Each job as it ends; of several also the error with which a wait ended, for the others go on."""
    if len(jobs) == 1:
        yield from ((name, waited(job, *limits)) for name, job in jobs.items())
        return
    came: queue.SimpleQueue[Came] = queue.SimpleQueue()

    def attend(name: str, job: Handle) -> None:
        try:
            came.put((name, waited(job, *limits)))
        except Exception as error:  # noqa: BLE001  (it is the main thread's)
            came.put((name, error))

    for pair in jobs.items():
        threading.Thread(target=attend, args=pair, daemon=True).start()
    yield from (_next(came) for _ in jobs)


def _next(came: queue.SimpleQueue[Came]) -> Came:
    """What comes next; a signal that arrives just before a wait without an end would not end it."""
    while True:
        with contextlib.suppress(queue.Empty):
            return came.get(timeout=TICK)


def _told(job: Handle, end: Seen | Exception, *, as_json: bool) -> int:
    """Say how a job, or the wait for it, ended; its exit code."""
    from arena.cli import main
    from arena.errors import ArenaError

    if isinstance(end, ArenaError):
        common.print_error(end, as_json=as_json)
        return main.exit_code(end.exit_code, ["wait"])
    if isinstance(end, Exception):
        raise end
    common.say_recorded(job, end)
    return ended(end)


def _say_rest(names: list[str]) -> None:
    """After an interrupt: which jobs go on, and what can be done about it."""
    if len(names) == 1:
        common.say(f"{names[0]} goes on: arena logs {names[0]} -f, arena delete {names[0]}")
    elif names:
        common.say(f"{', '.join(names)} go on: arena wait {' '.join(names)}, arena delete {' '.join(names)}")


def _print(seens: Iterable[Seen], fmt: str, *, alone: bool) -> None:
    """The data of the jobs that ended: of one that was named alone itself, else a list."""
    from arena.cli import output

    found = [output.job_json(seen) for seen in seens]
    output.emit(found[0] if alone else found, fmt)


def waited(job: Handle, timeout: float | None, start_timeout: float | None) -> Seen:
    """The job at its end, with why; each state and each quiet minute is a line on stderr."""
    from arena import showing
    from arena.cli import follow

    with follow.narrated(job):
        return showing.with_why(job, job.wait(timeout, start_timeout=start_timeout))


def ended(seen: Seen) -> int:
    """Say how the job ended, and what went half right; its exit code."""
    from arena.cli import output

    for warning in seen.warnings:
        common.say(output.cell(f"Warning: {seen.name}: {warning}"))
    common.say(output.cell(end_line(seen)))
    code = seen.exit_code
    return code if code is not None else 1


def end_line(seen: Seen) -> str:
    """`mnist: FAILED, worker-1 failed first, with code 3 …`, or `mnist: SUCCEEDED after 12 s`."""
    from arena.cli.output import short_duration

    if seen.state.name == "SUCCEEDED":
        return f"{seen.name}: SUCCEEDED after {short_duration(seen.duration)}"
    code = "" if seen.exit_code is None else f" (exit code {seen.exit_code})"
    return f"{seen.name}: {seen.state.name}{code}, {seen.why or seen.status.message or seen.reason}"


def write_record(job: Handle, seen: Seen, folder: str) -> None:
    """The run's record as files: run.yaml, result.json and the logs."""
    from pathlib import Path

    from arena import runfile
    from arena.backends.base import LogQuery
    from arena.cli import output

    place = Path(folder)
    (place / "logs").mkdir(parents=True, exist_ok=True)
    if seen.job is not None:
        (place / "run.yaml").write_text(runfile.dump(job.job(), masked=True), encoding="utf-8")
    (place / "result.json").write_text(output.render(output.job_json(seen), "json"), encoding="utf-8")
    for replica in seen.observed.replicas:
        query: Any = LogQuery(replicas=frozenset({replica.name}), pieces=True)
        with open(place / "logs" / f"{replica.name}.log", "wb") as file:
            for line in job.raw_logs(query):
                file.write(line.data if line.partial else line.data + b"\n")
    common.say_notes(job)


common.placed(wait)
