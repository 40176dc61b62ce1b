"""Why a job is as it is: one cause, the evidence, the next step. Never a guess.

Pure: what was observed and the last log lines come in, a `Why` goes out; `why`, get, logs, wait and run show the same.
A *reason* is the word of whoever runs the job (operator, kernel, supervisor); a *cause* is arena's own, from `CAUSES`.
What no rule knows is an `ExitCode` with the last lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from arena import runtimes, status
from arena.quantity import few, format_bytes
from arena.status import Observed, Replica, State, last_failure

if TYPE_CHECKING:
    from arena.waits import Facts

# Each cause, and the reasons it may stand beside; docs/why.md tells what to do about it.
ON_CLUSTERS: Mapping[str, tuple[str, ...]] = {
    "NeverFits": ("Unschedulable",),
    "Quota": ("FailedCreate", "FailedCreatePod"),
    "PodsRefused": ("FailedCreate", "FailedCreatePod"),
    "NoController": (),
    "ImagePull": ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
    "RunsAsRoot": ("CreateContainerConfigError",),
    "MissingConfig": ("CreateContainerConfigError",),
    "MissingVolume": ("Unschedulable", "FailedMount", "FailedAttachVolume"),
    "InitContainer": ("InitContainerFailed",),
    "Suspended": ("Suspended",),
    "Evicted": ("Evicted", "EvictionByEvictionAPI"),
    "Preempted": ("PreemptionByScheduler", "Preempted", "Preempting"),
    "NodeLost": ("NodeLost", "NodeShutdown", "DeletionByTaintManager", "DeletionByPodGC"),
    "NodeRefused": ("UnexpectedAdmissionError", "OutOfcpu"),
    "BackoffLimit": ("BackoffLimitExceeded",),
    "Deleted": ("Deleted", "EndNotSeen"),
}
CAUSES: Mapping[str, tuple[str, ...]] = {
    "MemoryLimit": ("OOMKilled",),
    "GpuMemory": ("Error",),
    "ShmTooSmall": ("Error",),
    "Signal": ("Error",),
    "MissingProgram": ("StartError", "Error"),
    "NotExecutable": ("StartError", "Error"),
    "MissingModule": ("Error",),
    "ExitCode": ("Error",),
    "DeadlineExceeded": ("DeadlineExceeded",),
    "Lost": ("Lost",),
    "Stopped": ("Stopped",),
    "SupervisorFailed": ("SupervisorFailed",),
    "Queue": ("Queue",),
    "GPUs": ("GPUs",),
    "Unschedulable": ("Unschedulable",),
    **ON_CLUSTERS,
}

AGAIN = ("CrashLoopBackOff", "RunContainerError")  # why a container that has failed waits
DISAGREE = timedelta(seconds=30)  # after the last end, before an operator that says Running is doubted
TAIL = 100  # log lines the rules want to see; torchrun's closing report alone has 45
SHOWN = 5
WIDEST = 400


class Why(Struct, frozen=True, kw_only=True):
    """One cause (None where arena has no word for it), in one line, with its evidence and what to do next.

    >>> print(Why(cause="ExitCode", text="worker-0 (rank 0) failed with code 3", next="arena logs mnist --failed"))
    ExitCode: worker-0 (rank 0) failed with code 3
    Next: arena logs mnist --failed
    """

    cause: str | None
    text: str
    evidence: tuple[str, ...] = ()
    next: str = ""

    def __str__(self) -> str:
        return render(self)


class Case(Struct, frozen=True, kw_only=True):
    """A failed job as the rules see it: the replica that failed first, and the last lines it wrote."""

    observed: Observed
    replica: Replica
    tail: tuple[str, ...]
    after: int
    name: str
    python: str

    @property
    def who(self) -> str:
        """`worker-37 (rank 37)`, with the attempt where there were several."""
        return _who(self.replica, self.observed)

    @property
    def error(self) -> str:
        """The line that looks like the error."""
        return error_line(self.tail)

    def why(self, cause: str, text: str, next: str, lines: Sequence[str] = ()) -> Why:
        """The answer, with how many ended after it and the lines (else the last ones) as evidence."""
        after = f"; {self.after} replica{'s' * (self.after > 1)} ended after it" if self.after else ""
        shown = tuple(f"{self.replica.name} | {line}" for line in lines or self.tail[-SHOWN:])
        return Why(cause=cause, text=text + after, evidence=(*shown, *self._later()), next=next)

    def _later(self) -> tuple[str, ...]:
        """The end of the last attempt, where the first failure belongs to an earlier one."""
        last = last_failure(self.observed)
        if last is None or last.attempt <= self.replica.attempt:
            return ()
        return (f"{_who(last, self.observed)} ended with code {last.exit_code}",)


Rule = Callable[[Case], Why | None]


def explain(
    observed: Observed,
    state: State,
    tails: Mapping[str, Sequence[str]] | None = None,
    waits: Sequence[str] = (),
    *,
    name: str = "NAME",
    python: str = "",
    facts: Facts | None = None,
) -> Why | None:
    """Why the job waits, failed or was stopped; None while all is well.

    `tails` holds the last lines of failed replicas by name, `waits` the runs it waits for in the queue; `name` and
    `python` (the job's interpreter) make the next step one that can be copied. `facts` are what a cluster knows of it.
    """
    if state is State.FAILED:
        return _failed(observed, tails or {}, name, python)
    if state is State.CANCELLED:
        return _cancelled(observed, name)
    if facts and fails_again(observed) and (again := _failing_again(observed, state, tails or {}, name)):
        return again
    if facts and state in (State.PENDING, State.SUSPENDED, State.RUNNING):
        from arena.waits import blocked

        return blocked(observed, state, facts, name)
    if state in (State.PENDING, State.QUEUED):
        return _waiting(observed, waits)
    if state is State.UNKNOWN:
        text = f"{observed.word!r} is no state that arena knows"
        return Why(cause=None, text=text, evidence=_lines(observed.message), next=f"arena get {name} -o json")
    return None


def warnings_of(observed: Observed) -> list[str]:
    """What went half right: processes killed for memory in replicas that went on all the same."""
    seen = (*observed.earlier, *observed.replicas)
    killed = [_survived(r, observed) for r in seen if r.oom_kills and not r.failed and r.exit_code in (None, 0)]
    return [*killed, *_disagreement(observed)]


def render(why: Why) -> str:
    """The text of `arena why`: the cause, the evidence indented, the next step."""
    lines = [f"{why.cause}: {why.text}" if why.cause else why.text]
    lines += [f"  {line}" for line in why.evidence]
    lines += [f"Next: {why.next}"] if why.next else []
    return "\n".join(lines)


def one_line(why: Why) -> str:
    """The one line that get, run, wait and logs show."""
    return f"{why.text} (next: {why.next})" if why.next else why.text


def first_failure(observed: Observed, tails: Mapping[str, Sequence[str]] | None = None) -> Replica | None:
    """The replica that failed first, over all attempts; the last lines tell whether it only lost a peer."""
    tails = tails or {}
    return status.first_failure(observed, lambda r: _about_peer(r, tails.get(r.name, ())))


def error_line(tail: Sequence[str]) -> str:
    """The line that looks like the error: the last exception that is not about a lost peer, else the last line."""
    lines = [line for line in tail if line.strip()]
    raised = [line for line in lines if re.match(_EXCEPTION, line) and "ChildFailedError" not in line]
    own = [line for line in raised if not re.search(status.PEER, line)]
    said = [line for line in lines if re.match(_SAID, line)]
    found = own or raised or said or lines
    return found[-1].strip() if found else ""


_EXCEPTION = (
    r"\s*(?:\[rank\d+\]: ?|\d+: ?)?(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Failure|Timeout)(?::|\s*$)"
)
_SAID = r"(?i)(?:\S+: )?(?:fatal(?: error)?|error|panic|abort)\s*[:\]]"


def _about_peer(replica: Replica, tail: Sequence[str]) -> bool:
    return not replica.oom_kills and re.search(status.PEER, error_line(tail)) is not None


# --- jobs that wait ------------------------------------------------------------------------------------------


def fails_again(observed: Observed) -> bool:
    """Whether replicas fail and wait to be started once more."""
    return any(replica.reason in AGAIN and replica.restarts for replica in observed.replicas)


def _failing_again(observed: Observed, state: State, tails: Mapping[str, Sequence[str]], name: str) -> Why | None:
    """Why a job that goes on has replicas that fail and are started again and again."""
    again = [replica for replica in observed.replicas if replica.reason in AGAIN and replica.restarts]
    if state.final or not any(replica.failed for replica in observed.earlier):
        return None
    failed = _failed(structs.replace(observed, word="Failed", reason=""), tails, name, "")
    times = f"; it was started {again[0].restarts + 1} times, and will be again"
    return structs.replace(failed, text=failed.text + times)


def _waiting(observed: Observed, waits: Sequence[str]) -> Why | None:
    if observed.reason == "Unschedulable":
        text = f"no node fits: {observed.message}" if observed.message else "no node fits"
        return Why(cause="Unschedulable", text=text, next="another --selector, or none: nodes may still come")
    if observed.reason == "GPUs":
        text = f"waits for GPUs: {observed.message}" if observed.message else "waits for GPUs"
        return Why(cause="GPUs", text=text, next="wait, ask for fewer --gpus, or see who runs: arena list")
    if observed.reason == "Queue" or waits:
        return _queued(observed, waits)
    return None


def _queued(observed: Observed, waits: Sequence[str]) -> Why:
    text = f"waits in the queue for {few(waits)}" if waits else f"waits in the queue: {observed.message}".rstrip(": ")
    follow = f"wait, or make room: arena stop {waits[0]}" if waits else "wait, or see who runs: arena list"
    return Why(cause="Queue", text=text, evidence=tuple(waits), next=follow)


def _cancelled(observed: Observed, name: str) -> Why:
    if observed.reason == "EndNotSeen":
        return Why(cause="Deleted", text=f"deleted, {observed.message}", next=f"arena rerun {name}")
    if observed.word == "Deleted" and not observed.message:
        return Why(cause="Deleted", text="deleted before its end", next=f"arena rerun {name}")
    return Why(cause="Stopped", text=f"stopped {observed.message}".rstrip(), next=f"arena rerun {name}")


# --- jobs that failed ----------------------------------------------------------------------------------------


def _failed(observed: Observed, tails: Mapping[str, Sequence[str]], name: str, python: str) -> Why:
    if "SupervisorFailed" in (observed.reason, observed.word):
        text = f"arena itself could not carry the job on: {observed.message}".rstrip(": ")
        return Why(cause="SupervisorFailed", text=text, next=f"arena rerun {name}")
    if observed.word == "Deadline" or observed.reason == "DeadlineExceeded":
        text = f"ended by its time limit: {observed.message}".rstrip(": ")
        return Why(cause="DeadlineExceeded", text=text, next="a longer --running-timeout")
    if observed.word == "Lost" or observed.reason == "Lost":
        return _lost(observed, name)
    replica = first_failure(observed, tails)
    if taken := _taken(observed, replica, name) or (None if replica else _drained(observed, name)):
        return taken
    if replica is None:
        return _unseen(observed, name)
    return _replica_failed(observed, replica, tails, name, python)


def _lost(observed: Observed, name: str) -> Why:
    lost = [_who(r, observed) for r in observed.replicas if r.lost]
    ended = [r for r in observed.replicas if r.failed and not r.lost]
    text = "nobody saw how it ended, so there is no exit code"
    text += f": {observed.message}" if observed.message else ""
    evidence = [f"{who} was lost" for who in lost[:SHOWN]]
    evidence += [f"{len(lost) - SHOWN} more were lost"] if len(lost) > SHOWN else []
    evidence += [f"{_who(r, observed)} ended with code {r.exit_code}" for r in ended[:SHOWN]]
    return Why(cause="Lost", text=text, evidence=tuple(evidence), next=f"arena rerun {name}")


def _unseen(observed: Observed, name: str) -> Why:
    """FAILED, and no replica failed by itself: the word of whoever ran it, and what became of its pods."""
    said = ": ".join(part for part in (observed.reason or observed.word, observed.message.rstrip(".")) if part)
    cause = "BackoffLimit" if re.search(r"BackoffLimitExceeded|backoff limit", said) else None
    if not any(r.started for r in (*observed.earlier, *observed.replicas)):
        text = f"{said or 'failed'}; its pods are gone, and nobody saw how they ended"
        return Why(cause=cause, text=text, next=f"arena rerun {name}, and while it runs: arena logs {name} -f")
    text = f"{said or 'failed'}{_pods_deleted(observed)}"
    return Why(cause=cause, text=text, next=f"arena logs {name} --all")


def _pods_deleted(observed: Observed) -> str:
    """The replicas that ended with their pods, where none was seen to fail by itself."""
    gone = [_who(r, observed) for r in observed.replicas if r.pod and r.ended_by_us and r.exit_code != 0]
    return f"; no replica was seen to fail, pods were deleted: {few(gone, SHOWN)}" if gone else ""


def _taken(observed: Observed, failed: Replica | None, name: str) -> Why | None:
    """What the cluster did to a replica, where that came before anything failed by itself."""
    if not any(replica.lost or replica.reason for replica in observed.replicas):
        return None
    from arena import waits

    found = waits.taken(observed, name)
    if found is None or (failed and failed.ended and (found[1] is None or failed.ended < found[1])):
        return None
    return found[0]


def _drained(observed: Observed, name: str) -> Why | None:
    """A pod that was evicted by request, as a drain of its node does."""
    replica = next((r for r in observed.replicas if r.reason == "EvictionByEvictionAPI"), None)
    if replica is None:
        return None
    text = f"{_who(replica, observed)} was evicted from node {replica.node} by request, as when a node is drained"
    return Why(cause="Evicted", text=text, next=f"arena rerun {name}")


def _replica_failed(
    observed: Observed, replica: Replica, tails: Mapping[str, Sequence[str]], name: str, python: str
) -> Why:
    case = Case(
        observed=observed,
        replica=replica,
        tail=tuple(_clean(line) for line in _last_words(replica, tails)[-TAIL:] if line.strip()),
        after=_ended_after(observed, replica),
        name=name,
        python=python,
    )
    return next(why for rule in RULES if (why := rule(case)))


def _last_words(replica: Replica, tails: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The end of its log; what the node kept of it where the log is gone."""
    return tails.get(replica.name, ()) or replica.message.splitlines()


def _ended_after(observed: Observed, first: Replica) -> int:
    """How many other replicas ended after it; within a tie the clocks say nothing, so those count too."""
    since = first.ended - timedelta(seconds=2) if first.ended and not first.ended.microsecond else first.ended
    others = (*observed.earlier, *observed.replicas)
    return len({r.name for r in others if r.name != first.name and r.ended and since and r.ended >= since})


def _memory_limit(case: Case) -> Why | None:
    replica = case.replica
    if not replica.oom_kills:
        return None
    limit, peak = _limit(replica), _peak(replica)
    if replica.exit_code == 137:
        text = f"{case.who} went over its {limit} and was killed{peak}, code 137"
    else:
        text = f"a process of {case.who} was killed at the {limit}{peak}; the replica ended with code"
        text += f" {replica.exit_code}"
    return case.why("MemoryLimit", text, _more_memory(replica))


def _missing_program(case: Case) -> Why | None:
    if case.replica.exit_code != 127 or not (what := _not_started(case, _NOT_FOUND)):
        return None
    follow = "check its spelling, and PATH where the job runs"
    return case.why("MissingProgram", f"{case.who} could not start, code 127: {what}", follow)


def _not_executable(case: Case) -> Why | None:
    if case.replica.exit_code != 126 or not (what := _not_started(case, _NO_PROGRAM)):
        return None
    follow = next(hint for said, hint in _TO_START if re.search(said, what, re.IGNORECASE))
    return case.why("NotExecutable", f"{case.who} could not start, code 126: {what}", follow)


_TO_START = (
    (r"is a (?:folder|directory)$", "name a program in it"),
    (r"argument list too long$", "fewer or shorter words and variables: what is long belongs into a file"),
    (r"", "chmod +x it, or name what runs it, as in: arena run sh FILE"),
)


_NOT_FOUND = (
    r"(?i).*?([^:\s][^:]*): (?:command )?not found\s*$|.*\benv: (.+): no such file or directory\s*$"
    r"|.*?([^:\s][^:]*): no such file or directory\s*$"
)
_NO_PROGRAM = r"(?i).*?([^:\s][^:]*): (?:permission denied|cannot execute.*|exec format error|is a directory)\s*$"


def _not_started(case: Case, pattern: str) -> str:
    """What could not start: the keeper's own message, or the shell's last line."""
    if case.replica.reason == "StartError":
        return runtimes.plain(case.replica.message) or "it could not be started"
    found = [line for line in case.tail[-SHOWN:] if re.fullmatch(pattern, line)]
    return found[-1].strip() if found else ""


def _gpu_memory(case: Case) -> Why | None:
    """The framework's own message, of PyTorch now and before 2.0."""
    said = re.search(r"(?:CUDA|HIP|XPU) out of memory\. Tried to allocate ([\d.]+ \w+)", case.error)
    if said is None:
        return None
    gpu = re.search(r"GPU (\d+)", case.error)
    free = re.search(r"of which ([\d.]+ \w+) is free|([\d.]+ \w+) free", case.error)
    rank = re.match(r"\s*\[rank(\d+)\]", case.error)
    where = f"{case.replica.name} (rank {rank[1]})" if rank else case.who
    text = f"GPU memory ran out on {where}: {said[1]} were asked for on {f'GPU {gpu[1]}' if gpu else 'its GPU'}"
    text += f" and {free[1] or free[2]} were free" if free else ""
    follow = "a smaller batch per GPU, or more --gpus and a sharded model"
    return case.why("GpuMemory", f"{text}, code {case.replica.exit_code}", follow, [case.error])


def _shm_too_small(case: Case) -> Why | None:
    lines = [line for line in case.tail if re.search(r"(?i)bus error|shared memory", line)]
    if not any("bus error" in line.lower() for line in lines) or "DataLoader" not in "\n".join(case.tail):
        return None
    text = f"{case.who} ran out of shared memory (/dev/shm) in a DataLoader, code {case.replica.exit_code}"
    return case.why("ShmTooSmall", text, "a larger --share-memory, or num_workers=0 in the DataLoader", lines[-SHOWN:])


def _signal(case: Case) -> Why | None:
    code = case.replica.exit_code or 0
    root = _root_cause(case.tail)
    root = root if root and root.code < 0 else None
    number = -root.code if root else code - 128
    if not 0 < number < 32:
        return None
    whose = f"rank {root.rank} of {case.replica.name} (torchrun's root cause)" if root else case.who
    text = f"{whose} was killed by signal {_signal_name(number)}, code {code}"
    return case.why("Signal", text, _SIGNAL_NEXT.get(number, f"arena logs {case.name} --failed"), _block(root))


# Linux' numbers, whatever machine this runs on; 10, 12, 16 to 23 differ between systems and stay without a name.
_SIGNALS = {
    1: "SIGHUP, hangup",
    2: "SIGINT, interrupt",
    3: "SIGQUIT, quit",
    4: "SIGILL, illegal instruction",
    5: "SIGTRAP, trap",
    6: "SIGABRT, aborted",
    7: "SIGBUS, bus error",
    8: "SIGFPE, arithmetic error",
    9: "SIGKILL, killed",
    11: "SIGSEGV, segmentation fault",
    13: "SIGPIPE, broken pipe",
    14: "SIGALRM, alarm clock",
    15: "SIGTERM, terminated",
    24: "SIGXCPU, CPU time limit",
    25: "SIGXFSZ, file size limit",
}
_SIGNAL_NEXT = {
    4: "a program built for this CPU: the instruction is not known here",
    9: "find who sent it: a person, a script, or the kernel when memory ran out (dmesg); --memory sets a limit",
    11: "run again with --env PYTHONFAULTHANDLER=1 to see where",
}


def _signal_name(number: int) -> str:
    name = _SIGNALS.get(number)
    return f"{number} ({name})" if name else str(number)


def _missing_module(case: Case) -> Why | None:
    error = case.error
    if not re.search(r"\b(?:ModuleNotFoundError|ImportError)\b|: No module named ", error):
        return None
    module = re.search(r"No module named '?([\w.]+)", error)
    said = re.match(r"(/\S*python[\d.]*): (?:No module named|Error while finding)", error)
    python = said[1] if said else case.python
    place = f" for {python}" if python else ""
    what = f"module {module[1]!r} is missing{place}" if module else f"{error}{place and f' ({python})'}"
    follow = f"{python or 'python'} -m pip install {module[1].partition('.')[0]}" if module else _logs(case)
    follow += " (the package may have another name)" if module else ""
    return case.why("MissingModule", f"{case.who}: {what}, code {case.replica.exit_code}", follow, [error])


def _exit_code(case: Case) -> Why:
    """Whatever nothing else knows: the code, and the line that looks like the error."""
    root = _root_cause(case.tail)
    first = " first," if case.after else ""
    text = f"{case.who} failed{first} with code {case.replica.exit_code}"
    text += f": torchrun's root cause is rank {root.rank}, code {root.code}" if root else ""
    error = root.error if root else case.error
    text += f": {error}" if error else ""
    return case.why("ExitCode", text, _logs(case), _block(root))


RULES: tuple[Rule, ...] = (
    _memory_limit,
    _missing_program,
    _not_executable,
    _gpu_memory,
    _shm_too_small,
    _signal,
    _missing_module,
    _exit_code,
)


class Root(Struct, frozen=True):
    """What torchrun found to have failed first among its processes."""

    rank: str
    code: int
    error: str
    lines: tuple[str, ...]


def _root_cause(tail: Sequence[str]) -> Root | None:
    """The last root cause block in the lines, with the exception that was raised before it or is told in it."""
    starts = [number for number, line in enumerate(tail) if line.startswith("Root Cause (first observed failure)")]
    if not starts:
        return None
    block = [line.strip() for line in takewhile(lambda line: not line.startswith("===="), tail[starts[-1] + 1 :])]
    rank = re.search(r"(?m)^rank +: (\d+)", "\n".join(block))
    code = re.search(r"(?m)^exitcode +: (-?\d+)", "\n".join(block))
    if not rank or not code:
        return None
    raised = [line for line in (*tail[: starts[-1]], *block) if re.match(_EXCEPTION, line)]
    return Root(rank[1], int(code[1]), error_line(raised) if _own(raised) else "", tuple(block))


def _own(raised: Sequence[str]) -> bool:
    """Whether a process said more than that torchrun's child failed."""
    return any("ChildFailedError" not in line for line in raised)


def _block(root: Root | None) -> tuple[str, ...]:
    return (*([root.error] if root.error else []), "Root Cause:", *root.lines) if root else ()


def _disagreement(observed: Observed) -> list[str]:
    """Where the operator still says Running, and every replica has ended a while ago."""
    ends = [replica.ended for replica in observed.replicas]
    if observed.word != "Running" or not ends or not all(ends):
        return []
    since = max(end for end in ends if end)
    if datetime.now(since.tzinfo) - since < DISAGREE:
        return []
    return ["all replicas have ended, but the operator still says Running: it may be down"]


# --- words ---------------------------------------------------------------------------------------------------


def _survived(replica: Replica, observed: Observed) -> str:
    count = "a process" if replica.oom_kills == 1 else f"{replica.oom_kills} processes"
    verb = "was" if replica.oom_kills == 1 else "were"
    where = f"{count} of {_who(replica, observed)} {verb} killed at the {_limit(replica)}{_peak(replica)}"
    return f"{where}, and the replica went on; {_more_memory(replica)}"


def _who(replica: Replica, observed: Observed) -> str:
    facts = [] if replica.rank is None else [f"rank {replica.rank}"]
    facts += [f"attempt {replica.attempt}"] if observed.attempt > 1 or observed.earlier else []
    return f"{replica.name} ({', '.join(facts)})" if facts else replica.name


def _limit(replica: Replica) -> str:
    return f"memory limit of {format_bytes(replica.memory_limit)}" if replica.memory_limit else "memory limit"


def _peak(replica: Replica) -> str:
    return f" (peak use {format_bytes(replica.memory_peak)})" if replica.memory_peak else ""


def _more_memory(replica: Replica) -> str:
    more = f" {format_bytes(2 * replica.memory_limit)}" if replica.memory_limit else ""
    return f"a higher limit, as --memory{more}, or use less"


def _logs(case: Case) -> str:
    return f"arena logs {case.name} --failed"


def _lines(text: str) -> tuple[str, ...]:
    return tuple(text.splitlines())


def _clean(line: str) -> str:
    """A log line fit for one line of a terminal: the last state of a progress bar, no control characters."""
    line = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", line.rstrip("\r\n")).rpartition("\r")[2]
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", "\ufffd", line)[:WIDEST]
