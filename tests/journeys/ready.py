"""The days that can be played now: set-up, table of what is left out, and how long each may take."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from journeys.left_out import LOCAL, WHOLE, Rule
from journeys.runner import Hook, Script
from journeys.stage import HERE, Stage, age, bare_container

HOUR = 3600


def as_it_is(place: Stage) -> None:
    """The shared set-up and nothing more."""


def on_local(place: Stage) -> None:
    """A machine whose default backend is set to `local`."""
    place.me.env["ARENA_BACKEND"] = "local"


def ci_container(place: Stage) -> None:
    """A container of a pipeline; `$E` is its whole environment."""
    bare_container(place)
    env = place.me.env
    env["E"] = f"env -i PATH={env['PATH']} TMPDIR={env['TMPDIR']} CI=true ARENA_BACKEND=local"


def unreadable_run(place: Stage) -> None:
    """One run among the others that its own user may not read."""
    state = Path(place.me.env["TMPDIR"], f"arena-{place.me.uid}")
    odd = state / "runs" / "odd-0000"
    odd.mkdir(parents=True)
    odd.chmod(0o000)


def last_week(place: Stage) -> None:
    """Three deleted runs of `mnist`, the newest with a secret and code that is nowhere else, and an artefact."""
    on_local(place)
    place.must("! arena run --name mnist -- sh -c 'exit 1'; arena delete mnist; sleep 1")
    place.must("arena run --name mnist train.py --epochs 1 && arena delete mnist; sleep 1")
    train = place.project / "train.py"
    train.write_text("import helper\n" + train.read_text())
    helper = place.project / "helper.py"
    helper.write_text('print("helper v1")\n')
    place.must("arena run --name mnist --env WANDB_API_KEY=secret1 --workers 2 train.py --epochs 1")
    place.must("arena delete mnist")
    helper.write_text('print("helper v2")\n')
    place.must("arena submit -f job.yaml --name artefact && arena wait artefact --record out/")


def full_list(place: Stage) -> None:
    """Jobs of two people in all states, some of them old."""
    on_local(place)
    state = place.project.parent / ".local" / "state" / "arena"
    place.must("arena run --detach --name p --selector zone=none train.py")
    place.must("arena run --detach --name r -- sleep 3000")
    place.must("! arena run --name f -- sh -c 'exit 3'")
    place.must("arena run --name s -- true")
    place.must("! ARENA_USER=bob arena run --name bf -- sh -c 'exit 3'")
    place.must("ARENA_USER=bob arena run --detach --name br -- sleep 3000")
    for name, seconds in (("f", 3 * HOUR), ("s", HOUR / 6), ("bf", 3 * HOUR)):
        age(state, name, seconds)


@dataclass(frozen=True, slots=True)
class Day:
    """A day as it can be played on one machine; `limit` in seconds, with the reason where it is long."""

    number: int
    rules: tuple[Rule, ...] = LOCAL
    set_up: Hook = on_local
    before: Mapping[str, Hook] = field(default_factory=dict)
    limit: int = 240

    @property
    def name(self) -> str:
        """As its file is called."""
        return f"day{self.number:02}"

    def script(self) -> Script:
        """What to carry out."""
        return Script(self.name, read_day(self.number), self.rules, self.before)


def read_day(number: int) -> str:
    """The text of any of the twelve days."""
    return (HERE / "days" / f"day{number:02}.md").read_text()


DAYS = (
    Day(1, WHOLE, as_it_is),
    Day(5, limit=600),  # 64 processes start and end on a few cores
    Day(6, set_up=ci_container, before={"$E arena list -o json --strict": unreadable_run}, limit=600),  # waits 150 s
    Day(7, set_up=last_week),
    Day(9, set_up=full_list),
    Day(12),
)
