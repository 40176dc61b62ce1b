"""Set-ups of days that are played on a test bed."""

import json
import shutil
import time
from copy import deepcopy
from pathlib import Path

from testbed.faults import FaultProxy
from testbed.images import WORK
from testbed.programs import program
from testbed.upstream import charts, sdk_folder
from testbed.users import SERVICE_ACCOUNT

from journeys.on_local import three_runs
from journeys.stage import HERE, bare_container
from journeys.team import TEAM, Object, Team, kubeconfig, write_for

GIT_PORT = 30080
OLD = 45  # seconds; as old as the finished jobs of Day 9 are, where the text says hours


def alice(team: Team) -> None:
    """alice with her own kubeconfig."""
    team.move_in(team.place.me, "alice")


def first_use(team: Team) -> None:
    """alice, and in her home a kubeconfig of a server that answers one write and then nothing more."""
    alice(team)
    proxy = team.ending.enter_context(FaultProxy(team.bed))
    proxy.silence(after_writes=1)
    me = team.place.me
    write_for(me, Path(me.env["HOME"], "proxy.kubeconfig"), json.loads(proxy.kubeconfig("alice").read_text()))


def many_pods(team: Team) -> None:
    """alice in a namespace that has room for 64 pods and more, where `run` makes a Job."""
    alice(team)
    quota = team.own("ResourceQuota")
    wide = deepcopy(quota)
    wide["spec"]["hard"]["pods"] = "100"
    team.replace(quota, wide)
    team.place.me.env["ARENA_ENGINES"] = "job"


def many_pods_of_an_operator(team: Team) -> None:
    """The same with a run file that makes a PyTorchJob, whose workers restart in place once."""
    many_pods(team)
    team.place.me.env["ARENA_ENGINES"] = "pytorchjob"
    (team.place.project / "pytorch.yaml").write_text("type: pytorch\nrestart_policy: OnFailure\nretry: 1\n")


def pipeline(team: Team) -> None:
    """A container of a pipeline; `$E` is its whole environment, `$E0` lacks the kubeconfig."""
    bare_container(team.place)
    me = team.place.me
    path = team.move_in(me, SERVICE_ACCOUNT.name, me.scratch / "ci.kubeconfig")
    me.env["KUBECACHEDIR"] = str(me.scratch / "kubectl")  # without a home it would be a folder of the project
    me.env["E0"] = f"env -i PATH={me.env['PATH']} TMPDIR={me.env['TMPDIR']} CI=true"
    me.env["E"] = f"{me.env['E0']} KUBECONFIG={path}"
    may_not_list_tfjobs(team)


def may_not_list_tfjobs(team: Team) -> None:
    """The service account may do what the others may, but not look at one kind."""
    role = team.own("Role")
    role["metadata"]["name"] = SERVICE_ACCOUNT.name
    role["rules"] = [rule for rule in role["rules"] if "kubeflow.org" not in rule["apiGroups"]]
    kinds = ["pytorchjobs", "mpijobs"]
    role["rules"].append({"apiGroups": ["kubeflow.org"], "resources": kinds, "verbs": ["*"]})
    binding = team.own("RoleBinding")
    without, only = deepcopy(binding), deepcopy(binding)
    without["subjects"] = [who for who in binding["subjects"] if who["kind"] == "User"]
    only["subjects"] = [who for who in binding["subjects"] if who["kind"] != "User"]
    only["metadata"]["name"] = only["roleRef"]["name"] = SERVICE_ACCOUNT.name
    team.create(role)
    team.create(only)
    team.replace(binding, without)


def last_week(team: Team) -> None:
    """alice with two contexts, whose runs were made in the first one."""
    me = team.place.me
    path = team.move_in(me, "alice")
    write_for(me, path, two_contexts(kubeconfig(team.bed, "alice"), kubeconfig(team.bed, "carol")))
    three_runs(team.place)


def two_contexts(first: Object, other: Object) -> Object:
    """One kubeconfig of two users: `first` is chosen, `other` has rights in another namespace."""
    both = deepcopy(first)
    both["users"] += other["users"]
    both["contexts"] = [
        {"name": name, "context": one["contexts"][0]["context"]} for name, one in (("first", first), ("other", other))
    ]
    both["current-context"] = "first"
    return both


def moving(team: Team) -> None:
    """alice with both programs, Arena (Go) as `old` with its charts, its SDK, and a git server."""
    team.move_in(team.place.me, "alice", way="token")  # as Arena (Go) makes users; it knows their names by it
    home = Path(team.place.me.env["HOME"])
    team.offer("old", program("arena"))
    team.offer("arena-kubectl", program("kubectl"))
    shutil.copytree(charts(), home / "charts", copy_function=shutil.copyfile)
    shutil.copy(HERE / "day08" / "legacy.sh", team.place.project)
    team.bed.kubectl("create", "-f", "-", given=json.dumps(UPSTREAM_RIGHTS))
    team.ending.callback(team.bed.kubectl, "delete", "-f", "-", given=json.dumps(UPSTREAM_RIGHTS))
    addresses = {"ARENASDK": str(sdk_folder()), "GIT_URL": git_server(team)}
    team.place.me.env |= addresses


# What Arena (Go) asks for when it makes a user: its submit looks at pods and services of all namespaces.
_LOOK = ["get", "list"]
UPSTREAM_RIGHTS: Object = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "arena:team-a:alice"},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["pods", "configmaps", "services", "nodes", "persistentvolumes", "namespaces"],
                    "verbs": _LOOK,
                },
                {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": _LOOK},
                {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "arena:team-a:alice"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "arena:team-a:alice",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
        },
    ],
}


def git_server(team: Team) -> str:
    """The address of `sample.git`, the same for pods and for this machine."""
    team.bed.kubectl("create", "-f", "-", given=json.dumps(GIT_SERVER))
    team.ending.callback(team.bed.kubectl, "delete", "--grace-period=1", "-f", "-", given=json.dumps(GIT_SERVER))
    url = f"http://{team.bed.place.address}:{GIT_PORT}/sample.git"
    sample = HERE / "day08" / "tf.py"
    team.place.must(f"""(
        set -e
        until git ls-remote {url} >/dev/null 2>&1; do sleep 0.2; done
        cd "$(mktemp -d)" && git init -q && cp {sample} . && git add tf.py
        git -c user.name=alice -c user.email=alice@example.com commit -qm One
        git push -q {url} HEAD:main
    )""")
    return url


_NAMED: Object = {"name": "git", "namespace": "default", "labels": {"app": "git"}}
_SERVE = "git init -q --bare -b main /srv/git/sample.git && exec serve-git"
GIT_SERVER: Object = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": _NAMED,
            "spec": {"containers": [{"name": "git", "image": WORK, "command": ["sh", "-c", _SERVE]}]},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _NAMED,
            "spec": {
                "type": "NodePort",
                "selector": {"app": "git"},
                "ports": [{"port": 8080, "nodePort": GIT_PORT}],
            },
        },
    ],
}


def full_list(team: Team) -> None:
    """Jobs of two people in all states, some of them older than others, and one that kubectl made."""
    alice(team)
    place, submit = team.place, "arena submit pytorch --image $IMAGE --name"
    team.move_in(place.others["bob"], "bob")
    place.must(f"{submit} f 'exit 3'; ! arena wait f")
    place.must(f"{submit} bf 'exit 3'; ! arena wait bf", who="bob")
    ended = time.monotonic()
    place.must(f"{submit} p --selector zone=none 'true'")
    place.must(f"{submit} r 'sleep 3000'")
    place.must(f"{submit} br 'sleep 3000'", who="bob")
    team.bed.kubectl("create", "-f", "-", user="alice", given=json.dumps(MADE_BY_HAND))
    for name in ("r", "br"):
        team.kubectl("wait", "--for=condition=Running", f"pytorchjob/{name}", "--timeout=60s")
    time.sleep(max(0.0, ended + OLD - time.monotonic()))
    place.must(f"{submit} s 'true'; arena wait s")


MADE_BY_HAND: Object = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "k", "namespace": TEAM},
    "spec": {
        "pytorchReplicaSpecs": {
            "Master": {
                "replicas": 1,
                "template": {
                    "spec": {"containers": [{"name": "pytorch", "image": WORK, "command": ["sleep", "3000"]}]},
                },
            }
        }
    },
}
