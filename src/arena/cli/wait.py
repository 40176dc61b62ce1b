"""`arena wait`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from arena.cli import common

if TYPE_CHECKING:
    from arena.client import Handle
    from arena.status import Seen


@click.command(
    epilog="""\b
Examples:
  arena wait mnist --timeout 2h            0, the job's own code, or 124 when the time is over
  arena wait mnist --record out/ -o json   its record as files, its end as JSON
"""
)
@click.argument("name", shell_complete=common.complete_names)
@common.type_option()
@click.option("--timeout", metavar="DURATION", help="Give up after 90s, 5m, 2h; the job goes on (exit 124).")
@click.option("--start-timeout", metavar="DURATION", help="Fail (exit 125) when it is not running after that time.")
@click.option("--record", metavar="DIR", help="Write the run's record to a folder.")
@common.output_option("text", "json", "yaml")
@click.pass_context
def wait(ctx: click.Context, name: str, kind: str, timeout: str, start_timeout: str, record: str, fmt: str) -> int:
    """Wait until a job has ended; the exit code is the job's own."""
    from arena.cli import output
    from arena.cli.signals import Interrupt, Signals

    job = common.named(common.client(ctx), name, kind, gone=True)
    with Signals():
        try:
            seen = waited(job, common.seconds("--timeout", timeout), common.seconds("--start-timeout", start_timeout))
        except Interrupt as stop:
            common.say(f"{job.name} goes on: arena logs {job.name} -f, arena delete {job.name}")
            return stop.exit_code
    common.say_recorded(job, seen)
    if record:
        write_record(job, seen, record)
    if fmt != "text":
        output.emit(output.job_json(seen), fmt)
    return ended(seen)


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
        (place / "run.yaml").write_text(runfile.dump(job.job(), masked=True))
    (place / "result.json").write_text(output.render(output.job_json(seen), "json"))
    for replica in seen.observed.replicas:
        query: Any = LogQuery(replicas=frozenset({replica.name}), pieces=True)
        with open(place / "logs" / f"{replica.name}.log", "wb") as file:
            for line in job.raw_logs(query):
                file.write(line.data if line.partial else line.data + b"\n")
    common.say_notes(job)


common.placed(wait)
