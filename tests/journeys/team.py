"""The cluster a day plays on: `team-a` of a test bed as it was at first, and the people who may work in it."""

import base64
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.bed import Bed
from testbed.images import WORK
from testbed.programs import program
from testbed.users import team_objects

from journeys.people import BIN, Person, environment
from journeys.stage import Stage, folder

TEAM = "team-a"
DEFAULTS = "arena-defaults"
# What a namespace has by itself, or what the test bed gave it; all else is a day's.
OF_THE_NAMESPACE = ("serviceaccounts", "events", "roles", "rolebindings", "resourcequotas", "limitranges", "configmaps")
AUTHORITY = "kube-root-ca.crt"
Object = dict[str, Any]


@dataclass
class Team:
    """A stage whose people have a cluster; what `ending` holds is undone after the day."""

    bed: Bed
    place: Stage
    ending: ExitStack = field(default_factory=ExitStack)

    @property
    def bin(self) -> Path:
        """Programs for everyone, after those of the tested environment."""
        return self.place.root / "bin"

    def kubectl(self, *words: str, given: Object | None = None) -> str:
        """What kubectl says to the administrator."""
        return self.bed.kubectl("-n", TEAM, *words, given=None if given is None else json.dumps(given))

    def create(self, thing: Object) -> None:
        """Make an object that is gone after the day."""
        self.kubectl("create", "-f", "-", given=thing)
        self.ending.callback(self.kubectl, "delete", "--ignore-not-found", "-f", "-", given=thing)

    def replace(self, old: Object, new: Object) -> None:
        """Change one of the test bed's own objects for the day."""
        self.kubectl("replace", "-f", "-", given=new)
        self.ending.callback(self.kubectl, "replace", "-f", "-", given=old)

    def own(self, kind: str) -> Object:
        """One of the objects that the test bed gave the team."""
        [found] = [thing for thing in team_objects(TEAM) if thing["kind"] == kind]
        return found

    def offer(self, name: str, path: Path) -> None:
        """Put a program on everyone's PATH; another user may not reach where it lies."""
        try:
            os.link(path, self.bin / name)
        except OSError:
            shutil.copy(path, self.bin / name)

    def move_in(self, person: Person, user: str, path: Path | None = None, way: str = "") -> Path:
        """Give a person the kubeconfig of a user of the cluster; the way is a certificate, or "token"."""
        path = path or folder(Path(person.env["HOME"], ".kube")) / "config"
        write_for(person, path, kubeconfig(self.bed, user, way))
        words = person.env["PATH"].split(":")
        person.env["PATH"] = ":".join([str(BIN), str(self.bin), *(word for word in words if word != str(BIN))])
        person.env |= {"KUBECONFIG": str(path), "IMAGE": WORK}
        return path


@contextmanager
def team(bed: Bed, place: Stage) -> Iterator[Team]:
    """A team without any job, whose namespace names the work image as everyone's; an administrator is there."""
    made = Team(bed, place)
    with made.ending:
        sweep(made)
        made.ending.callback(sweep, made)
        made.bin.mkdir(mode=0o755)
        made.offer("kubectl", program("kubectl"))
        made.kubectl("create", "configmap", DEFAULTS, f"--from-literal=image={WORK}")
        home = folder(place.root / "admin")
        place.others["admin"] = Person("admin", os.getuid(), home, home, environment("admin", home))
        made.move_in(place.others["admin"], "admin")
        yield made


def sweep(team: Team) -> None:
    """Delete what days and tests left in the namespace, and wait until it is gone."""
    listed = team.kubectl("api-resources", "--namespaced", "--verbs=list,deletecollection", "-o", "name").split()
    kinds = ",".join(kind for kind in listed if kind.partition(".")[0] not in OF_THE_NAMESPACE)
    gone = ("--ignore-not-found", "--grace-period=1", "--timeout=90s")
    team.kubectl("delete", kinds, "--all", *gone)
    team.kubectl("delete", "configmaps", f"--field-selector=metadata.name!={AUTHORITY}", *gone)


def kubeconfig(bed: Bed, user: str, way: str = "") -> Object:
    """A user's kubeconfig that names no file: other people of this machine can read it."""
    config: Object = json.loads(bed.kubeconfig(user, way).read_text())
    secret = config["users"][0]["user"]
    for name in ("client-certificate", "client-key"):
        if name in secret:
            secret[f"{name}-data"] = base64.b64encode(Path(secret.pop(name)).read_bytes()).decode()
    return config


def write_for(person: Person, path: Path, content: Object) -> None:
    """A private JSON file of a person."""
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    if person.wrap:
        for each in (path, path.parent):
            os.chown(each, person.uid, person.uid)
