"""The days that can be played now: set-up, table of what is left out, and how long each may take."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from journeys import on_cluster, on_local
from journeys.left_out import CLUSTER_RULES, LOCAL, PYTORCHJOB, WHOLE, Rule
from journeys.runner import Hook, Script
from journeys.stage import HERE
from journeys.team import Team


@dataclass(frozen=True, slots=True)
class Day:
    """A day as it can be played on one machine; `limit` in seconds, with the reason where it is long."""

    number: int
    rules: tuple[Rule, ...] = LOCAL
    set_up: Hook = on_local.on_local
    before: Mapping[str, Hook] = field(default_factory=dict)
    limit: int = 240

    @property
    def name(self) -> str:
        """As its file is called."""
        return f"day{self.number:02}"

    def script(self) -> Script:
        """What to carry out."""
        return Script(self.name, read_day(self.number), self.rules, self.before)


@dataclass(frozen=True, slots=True)
class ClusterDay:
    """A day as it can be played on a test bed: that of the fixture `node`, or one of its own with these operators.

    A day that is not `ready` is played only when it is asked for.
    """

    number: int
    set_up: Callable[[Team], None] = on_cluster.alice
    rules: tuple[Rule, ...] = CLUSTER_RULES
    variant: str = "cluster"
    operators: tuple[str, ...] | None = None
    limit: int = 300
    ready: bool = False

    @property
    def name(self) -> str:
        """As its file is called, and where it is played."""
        return f"day{self.number:02}[{self.variant}]"

    def script(self) -> Script:
        """What to carry out."""
        return Script(self.name, read_day(self.number), self.rules)


def read_day(number: int) -> str:
    """The text of any of the twelve days."""
    return (HERE / "days" / f"day{number:02}.md").read_text()


DAYS = (
    Day(1, WHOLE, on_local.as_it_is),
    Day(5, limit=600),  # 64 processes start and end on a few cores
    Day(
        6,
        set_up=on_local.ci_container,
        before={"$E arena list -o json --strict": on_local.unreadable_run},
        limit=600,  # waits 150 s
    ),
    Day(7, set_up=on_local.last_week),
    Day(9, set_up=on_local.full_list),
    Day(12),
)

CLUSTER = (
    ClusterDay(2, on_cluster.first_use, operators=(), ready=True),  # its text: no training operator is installed
    ClusterDay(5, on_cluster.many_pods, limit=900, ready=True),  # 64 pods start and end on a few cores
    # Holds on a calm machine only: on a busy one the operator takes the pods away before their first end is told.
    ClusterDay(5, on_cluster.many_pods_of_an_operator, PYTORCHJOB, "cluster,pytorchjob", limit=900),
    ClusterDay(6, on_cluster.pipeline, limit=600, ready=True),  # waits 150 s
    ClusterDay(7, on_cluster.last_week, ready=True),
    ClusterDay(8, on_cluster.moving, ready=True),
    ClusterDay(9, on_cluster.full_list, ready=True),
)
