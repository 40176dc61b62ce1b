"""What a backend cannot carry out of a day, or carries out in other words: tables to read.

A rule's pattern is searched in the line of a step (its prompt included) and of an expectation, from top to bottom.
Without `instead` the line is left out, a step with all that stands below it; with `instead` only the matching words are
replaced. A key or signal goes with the step it belongs to. Every rule must match something in the days it serves, so a
rule that is no longer needed fails a test.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from journeys.notation import Expectation, Step, parse_expectation, parse_step


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern, why it cannot be, and the words that stand for it if there are some."""

    pattern: str
    reason: str
    instead: str | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """One line of a day that is not carried out as written."""

    line: int
    text: str
    rule: Rule

    def __str__(self) -> str:
        verb = "left out" if self.rule.instead is None else "changed"
        return f"line {self.line}: {verb}: {self.text}  ({self.rule.reason})"


@dataclass(slots=True)
class Choice:
    """The steps to carry out, and what differs from the text."""

    steps: list[Step] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


# Nothing is left out of a day made for a machine without a cluster.
WHOLE: tuple[Rule, ...] = ()

ONE_FOLDER = Rule(r"(?<!\w)/tmp/", "the one folder that may be written is the test's own", instead="$TMPDIR/")

# Days written for a cluster, on the local backend.
LOCAL: tuple[Rule, ...] = (
    Rule(
        r' && arena submit pytorch --name r --image \$IMAGE "true"',
        "names an image; the name is taken again by a plain job",
        instead=" && arena run --detach --name r -- true",
    ),
    Rule(
        r' and j\["namespace"\] == "team-a"',
        "names a namespace; the rest of the expression binds",
        instead="",
    ),
    ONE_FOLDER,
    Rule(r"^admin\$", "needs the cluster's administrator"),
    Rule(r"\bkubectl\b", "names kubectl"),
    Rule(r"\bteam-a\b", "names a namespace"),
    Rule(r"--image\b", "names an image"),
    Rule(r"--context\b|\bcontext=", "names another context"),
    Rule(r"\barena delete both$", "needs a service beside a job of the same name"),
    Rule(r"\barena delete k$", "needs an object made with kubectl"),
    Rule(r"\barena\.tensorboard\b", "names TensorBoard"),
    Rule(r"\barena\.run\((train|uses_handle)\b", "runs a Python function"),
)

# Days written for a cluster, on a test bed.
CLUSTER_RULES: tuple[Rule, ...] = (
    ONE_FOLDER,
    Rule(r"(?<=--since )1h\b", "nothing is three hours old on a cluster that was made just now", instead="45s"),
    Rule(r"\barena delete both$", "needs a service beside a job of the same name; there is no `serve` yet"),
    Rule(r"\barena serve\b", "there is no `serve` yet"),
    Rule(r"\barena submit volcano\b", "there is no `submit volcano` yet"),
    Rule(
        r"(?<=\$ )old delete from-py -n team-a",
        "Arena (Go) does not wait until the pods are gone",
        instead="old delete from-py -n team-a && kubectl wait --for=delete pod/from-py-master-0 --timeout=60s >&2",
    ),
    Rule(
        r"print\(\[j\.get_name\(\) for j in C.*, False\)\]\)",
        "arenasdk 0.10.0 cannot read a list with a job in it, Arena (Go)'s own neither; it can read one job",
        'print(C("", "team-a").training().get("mnist", T.AllTrainingJob).get_name())',
    ),
    Rule(r"^(?=\$ python3 -c 'from arenasdk)\$ ", "arenasdk lies in a folder of its own", "$ PYTHONPATH=$ARENASDK "),
)

AGAIN = "a worker that restarts says it again"

# One that makes a PyTorchJob: rank 0 is its Master, and workers are counted from rank 1.
PYTORCHJOB: tuple[Rule, ...] = (
    Rule(r"\barena run\b", "the run file says that it is a PyTorchJob", instead="arena run -f pytorch.yaml"),
    Rule(r"\bworker-37\b", "rank 37 is the 37th worker of a PyTorchJob", instead="worker-36"),
    Rule(r"\^worker-\\d\+", "rank 0 is the Master of a PyTorchJob", instead=r"^(master-0|worker-36)"),
    Rule(r"(?<=rank \\d\+ up/ )64", AGAIN, instead="64-127"),
    Rule(r"(?<=rank \\d\+ up/ )2", AGAIN, instead="2-4"),
    Rule(r"(?<=closed by peer/ )0-63", AGAIN, instead="0-126"),
    Rule(r'(?<="rank": \?37\\b/ )2', AGAIN + ", and why it cannot go on", instead="2-9"),
    Rule(r"(?<=bad sample 1234/ )1", AGAIN, instead="1-2"),
)


def choose(steps: Iterable[Step], rules: tuple[Rule, ...]) -> Choice:
    """The steps that a table leaves, in its words, with a note for each difference.

    >>> [step] = [parse_step(1, "$ kubectl get pods")]
    >>> choose([step], LOCAL).notes[0].rule.reason
    'names kubectl'
    """
    choice = Choice()
    dropped: Rule | None = None
    for step in steps:
        rule = dropped if step.kind in ("key", "signal") else None
        words, dropped = (step.source, rule) if rule else rewritten(step.line, step.source, rules, choice.notes)
        if dropped:
            choice.notes.append(Note(step.line, step.source, dropped))
        else:
            choice.steps.append(replace(parse_step(step.line, words), expectations=demands(step, rules, choice.notes)))
    return choice


def demands(step: Step, rules: tuple[Rule, ...], notes: list[Note]) -> tuple[Expectation, ...]:
    """The expectations of a step that stay, in the table's words."""
    kept = []
    for expectation in step.expectations:
        words, dropped = rewritten(expectation.line, expectation.text, rules, notes)
        if dropped:
            notes.append(Note(expectation.line, expectation.text, dropped))
        else:
            kept.append(parse_expectation(expectation.line, words))
    return tuple(kept)


def rewritten(line: int, text: str, rules: tuple[Rule, ...], notes: list[Note]) -> tuple[str, Rule | None]:
    """A line in the table's words, and the rule that drops it."""
    for rule in rules:
        if not re.search(rule.pattern, text):
            continue
        if rule.instead is None:
            return text, rule
        notes.append(Note(line, text, rule))
        text = re.sub(rule.pattern, rule.instead, text)
    return text, None
