"""Carries a day out, step by step, and says what did not hold."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from journeys.child import Child, until
from journeys.kernel import Kernel
from journeys.left_out import Rule, choose
from journeys.notation import NoProcess, Ok, Save, Step, Value, parse
from journeys.observed import Observed, check, implied, lines
from journeys.people import STEP_LIMIT
from journeys.stage import Stage, processes

Hook = Callable[[Stage], None]
ASK_FOR = 10.0  # seconds that `ok cmd` is asked
READERS_END = 5.0  # seconds for a follower to end after what it followed
CELL_STARTS = 3.0  # a cell that waits for its job's output says nothing by itself before the key is pressed
SHOWN = 30


@dataclass(frozen=True, slots=True)
class Failure:
    """A demand that did not hold, with what was observed."""

    step: Step
    demand: str
    line: int
    why: str
    seen: Observed

    def __str__(self) -> str:
        return f"  line {self.line} demanded: {self.demand}\n  observed: {self.why}"


@dataclass(slots=True)
class Report:
    """How a day went."""

    name: str
    failures: list[Failure] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        steps = groupby(self.failures, key=lambda failure: failure.step)
        return "\n".join(
            f"{self.name} line {step.line}: {step.source}\n{explained(list(each))}" for step, each in steps
        )


@dataclass(slots=True)
class Script:
    """A day to carry out: its text, what is left out of it, and what happens just before some of its steps."""

    name: str
    text: str
    rules: tuple[Rule, ...] = ()
    before: Mapping[str, Hook] = field(default_factory=dict)


class Runner:
    """Carries steps out on a stage."""

    def __init__(self, stage: Stage, say: Callable[[str], None] = print) -> None:
        self.stage, self.say = stage, say
        self.children: list[Child] = []
        self.kernel: Kernel | None = None
        self.cell_last = False

    def play(self, script: Script) -> Report:
        """The report of a day; a step that never ends ends the day."""
        report = Report(script.name)
        choice = choose(parse(script.text), script.rules)
        for note in (*self.stage.notes, *map(str, choice.notes)):
            self.leave_out(report, note)
        try:
            self.carry_out_all(choice.steps, script.before, report)
        finally:
            self.end()
        return report

    def carry_out_all(self, steps: Sequence[Step], before: Mapping[str, Hook], report: Report) -> None:
        """Each step in turn, its demands checked."""
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            if missing := self.missing(step):
                self.leave_out(report, f"line {step.line}: left out: {step.source}  ({missing})")
                continue
            if step.text in before:
                before[step.text](self.stage)
            seen = self.carry_out(step, keyed=following is not None and following.kind == "key")
            failures = list(self.judge(step, seen))
            self.tell(report, step, seen, failures)
            if any(failure.demand == ENDS for failure in failures):
                return

    def leave_out(self, report: Report, text: str) -> None:
        """Note and print what is not carried out as written."""
        report.left_out.append(text)
        self.say(f"{report.name} {text}")

    def missing(self, step: Step) -> str:
        """Why the person of a step cannot type here."""
        if step.who and step.who not in self.stage.others:
            return f"there is no {step.who} here"
        return self.stage.person(step.who).reason

    def carry_out(self, step: Step, *, keyed: bool) -> Observed:
        """Do what a step says, and observe."""
        if step.kind in ("run", "tty", "background"):
            self.cell_last = False
        match step.kind:
            case "run":
                return self.stage.person(step.who).run(step.text)
            case "tty":
                return self.type_on_terminal(step, keyed)
            case "background":
                self.start(step).first_line()
                return self.children[-1].seen()
            case "key":
                return self.press(step.text)
            case "signal":
                return self.send(step.text)
            case "cell":
                return self.enter_cell(step.text, keyed)

    def start(self, step: Step) -> Child:
        """Start a command that is not waited for."""
        self.children.append(self.stage.person(step.who).start(step.text, terminal=step.kind == "tty"))
        return self.children[-1]

    def type_on_terminal(self, step: Step, keyed: bool) -> Observed:
        """A command on a terminal, up to where a key is pressed or to its end."""
        child = self.start(step)
        if not keyed:
            return child.finish(STEP_LIMIT)
        child.quiet()
        return child.seen()

    def press(self, key: str) -> Observed:
        """A key on the last terminal, or in the notebook when a cell came last."""
        if self.cell_last:
            return self.press_in_notebook(key)
        child = self.children[-1]
        child.key(key)
        return child.finish(STEP_LIMIT)

    def press_in_notebook(self, key: str) -> Observed:
        """Interrupt the running cell, or restart the kernel."""
        kernel = self.notebook()
        if key == "restart":
            kernel.restart()
            return Observed(code=0)
        if kernel.seen.code is not None:  # the cell did not wait for the key
            return kernel.seen
        kernel.interrupt()
        return kernel.finish(STEP_LIMIT)

    def send(self, signal: str) -> Observed:
        """A signal to the last command that was not waited for."""
        child = self.children[-1]
        child.signal(signal)
        return child.finish(STEP_LIMIT)

    def enter_cell(self, code: str, keyed: bool) -> Observed:
        """A cell, up to where a key is pressed or to its end."""
        kernel = self.notebook()
        self.cell_last = True
        kernel.start(code)
        if not keyed:
            return kernel.finish(STEP_LIMIT)
        kernel.wait(CELL_STARTS)
        return kernel.seen

    def notebook(self) -> Kernel:
        """The day's kernel, started when it is first needed."""
        if self.kernel is None:
            me = self.stage.me
            self.kernel = Kernel(self.stage.project.parent, me.env, me.scratch)
        return self.kernel

    def judge(self, step: Step, seen: Observed) -> Iterator[Failure]:
        """Every demand that does not hold, the unwritten ones included."""
        for expectation in step.expectations:
            why = self.held(step, expectation.what, seen) if needs_hands(expectation.what) else check(expectation, seen)
            if why is not None:
                yield Failure(step, expectation.text, expectation.line, why, seen)
        for demand, observed in self.implied(step, seen):
            yield Failure(step, demand, step.line, observed, seen)

    def implied(self, step: Step, seen: Observed) -> Iterator[tuple[str, str]]:
        """Demands without words: it ends, nothing is shown that must not be, a cell raises nothing unasked."""
        yield from (("(always)", why) for why in implied(step, seen))
        if seen.unended:
            yield ENDS, f"still running after {STEP_LIMIT:.0f} s"
        asked = any(expectation.text.startswith("raises ") for expectation in step.expectations)
        if seen.raised and not asked:
            yield "(always) a cell raises nothing unasked", f"{seen.raised.name}: {seen.raised.text}"

    def held(self, step: Step, what: object, seen: Observed) -> str | None:
        """Why a demand that needs a look at the machine does not hold."""
        match what:
            case Ok(command):
                return self.ask(step, command)
            case NoProcess(pattern):
                person = self.stage.person(step.who)
                return self.runs(person.uid, pattern)
            case Value(expression):
                return self.notebook().false(expression)
            case Save(variable, pattern):
                found = [hit[1] for line in lines(seen.out) if (hit := pattern.search(line))]
                self.stage.me.env.update({variable: found[0]} if found else {})
                return None if found else "no line matches"
        raise TypeError(what)

    def runs(self, uid: int, pattern: re.Pattern[str]) -> str | None:
        """A command line that still matches after a moment: whoever followed a job hears of its end a little later."""
        found: list[str] = []

        def gone() -> bool:
            found[:] = [words for words in command_lines(self.stage, uid) if pattern.search(words)]
            return not found

        return None if until(READERS_END, gone, pause=0.1) else f"runs: {found[0]}"

    def ask(self, step: Step, command: str) -> str | None:
        """Run a shell command until it ends with 0, or why it did not."""
        ended: list[Observed] = []

        def holds() -> bool:
            child = self.stage.person(step.who).start(command)
            ended.append(child.finish(ASK_FOR))
            child.end()
            return ended[-1].code == 0

        if until(ASK_FOR, holds, pause=0.2):
            return None
        return f"exit {ended[-1].code} after {len(ended)} tries: {ended[-1].err.strip()[-300:]}"

    def tell(self, report: Report, step: Step, seen: Observed, failures: Sequence[Failure]) -> None:
        """Print how a step went and keep what failed."""
        word = "FAILED" if failures else "ok"
        self.say(f"{report.name} line {step.line}: {word:6} {seen.seconds:6.2f} s  {step.source}")
        if failures:
            self.say(explained(failures))
        report.failures.extend(failures)

    def end(self) -> None:
        """End the commands and the kernel that still run."""
        for child in self.children:
            child.end()
        if self.kernel is not None:
            self.kernel.end()


ENDS = "(always) every command ends"


def needs_hands(what: object) -> bool:
    """Whether a demand is about the machine or the kernel, not about output, code and time."""
    return isinstance(what, Ok | NoProcess | Value | Save)


def command_lines(stage: Stage, uid: int) -> Iterator[str]:
    """The command lines of a user's processes that the day left running, the runner and its parents not among them."""
    for process in processes(stage.root, uid):
        if process.pid not in (os.getpid(), os.getppid()):
            yield " ".join(process.cmdline())


def explained(failures: Sequence[Failure]) -> str:
    """What did not hold after one step, and once the output of that step."""
    seen = failures[0].seen
    outputs = (("stdout", seen.out), ("stderr", seen.err if seen.err != seen.out else ""))
    return "\n".join([*map(str, failures), *(tail(name, text) for name, text in outputs if text)])


def tail(name: str, text: str) -> str:
    """The last lines of an output."""
    shown = lines(text)[-SHOWN:]
    return f"  --- {name}, last {len(shown)} lines\n" + "\n".join(f"  {line}" for line in shown)


def say_now(text: str) -> None:
    """Print at once, so that a day can be watched."""
    print(text, file=sys.stdout, flush=True)
