"""Who may do what: the people of the acceptance scripts, and the system's own accounts."""

import secrets
from typing import Any, NamedTuple

from testbed.layout import NODE

Object = dict[str, Any]


class User(NamedTuple):
    """A name the API server knows, its groups, and the namespace it has rights in."""

    name: str
    groups: tuple[str, ...] = ()
    namespace: str = ""


TEAMS = ("team-a", "team-b")
SERVICE_ACCOUNT = User("ci", namespace="team-a")
PEOPLE = (
    User("admin", ("system:masters",), "default"),
    User("alice", ("data-scientists",), "team-a"),
    User("bob", ("data-scientists",), "team-a"),
    User("carol", ("data-scientists",), "team-b"),
    User("guest", (), "team-a"),
)
NO_RIGHTS = ("admin", "guest")  # one needs no role, one has none
SYSTEM = (
    User("system:kube-controller-manager"),
    User("system:kube-scheduler"),
    User("system:kube-proxy"),
    User(f"system:node:{NODE}", ("system:nodes",)),
    User("coredns", ("system:masters",)),
    User("kwok", ("system:masters",)),
)

EVERYTHING = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
LOOK = ["get", "list", "watch"]
ROLE_RULES: list[Object] = [
    {
        "apiGroups": [""],
        "resources": [
            "pods",
            "pods/log",
            "pods/exec",
            "pods/attach",
            "pods/portforward",
            "services",
            "configmaps",
            "secrets",
            "persistentvolumeclaims",
        ],
        "verbs": EVERYTHING,
    },
    {"apiGroups": [""], "resources": ["events", "resourcequotas", "limitranges", "serviceaccounts"], "verbs": LOOK},
    {"apiGroups": ["batch", "apps"], "resources": ["*"], "verbs": EVERYTHING},
    {
        "apiGroups": ["kubeflow.org", "trainer.kubeflow.org", "jobset.x-k8s.io", "ray.io"],
        "resources": ["*"],
        "verbs": EVERYTHING,
    },
]
QUOTA: Object = {"pods": "60", "requests.cpu": "8", "requests.memory": "16Gi", "requests.nvidia.com/gpu": "16"}
LIMITS: Object = {
    "type": "Container",
    "default": {"cpu": "2", "memory": "512Mi"},
    "defaultRequest": {"cpu": "20m", "memory": "32Mi"},
}


def token_file(tokens: dict[str, str]) -> str:
    """The API server's file of static tokens: token, user, uid and groups in each line."""
    lines = []
    for user in (*PEOPLE, *SYSTEM):
        groups = ",".join(user.groups)
        lines.append(f'{tokens[user.name]},{user.name},{user.name},"{groups}"')
    return "\n".join(lines) + "\n"


def new_tokens() -> dict[str, str]:
    """A token for each user, new for each test bed."""
    return {user.name: secrets.token_hex(16) for user in (*PEOPLE, *SYSTEM)}


def team_objects(team: str) -> list[Object]:
    """What a team's namespace holds from the start: role, binding, quota and limits."""
    members = [user.name for user in PEOPLE if user.namespace == team and user.name not in NO_RIGHTS]
    subjects = [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"} for name in members]
    objects = []
    if team == SERVICE_ACCOUNT.namespace:
        subjects.append({"kind": "ServiceAccount", "name": SERVICE_ACCOUNT.name, "namespace": team})
        objects.append(_object("v1", "ServiceAccount", SERVICE_ACCOUNT.name, team))
    rbac = "rbac.authorization.k8s.io/v1"
    role = {"kind": "Role", "name": "arena-user", "apiGroup": "rbac.authorization.k8s.io"}
    return [
        *objects,
        _object(rbac, "Role", "arena-user", team, rules=ROLE_RULES),
        _object(rbac, "RoleBinding", "arena-users", team, roleRef=role, subjects=subjects),
        _object("v1", "ResourceQuota", "team", team, spec={"hard": QUOTA}),
        _object("v1", "LimitRange", "team", team, spec={"limits": [LIMITS]}),
    ]


def namespace(team: str) -> Object:
    """The namespace of a team."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}}


def _object(version: str, kind: str, name: str, team: str, **rest: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": team}, **rest}
