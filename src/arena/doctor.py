"""What arena finds where it stands: which cluster, which rights, which kinds and limits, and what is in the way.

`examine` asks the server a dozen questions side by side and fails at none of them; every answer that may not be had is
a line of its own. `role` is the Role that an administrator has to grant, and needs no server.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from arena._version import __version__
from arena.errors import ArenaError, BackendError, ForbiddenError

if TYPE_CHECKING:
    from arena.backends.kubernetes.backend import KubernetesBackend
    from arena.client import Client

SCHEMA = 1
EVERYTHING = ("get", "list", "watch", "create", "patch", "delete")


class Need(Struct, frozen=True):
    """Rights that arena needs, and what for; a job cannot be submitted without those that are `must`."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    use: str
    must: bool = False

    @property
    def name(self) -> str:
        """As kubectl spells it: `jobs.batch`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


NEEDS = (
    Need("", "pods", ("get", "list", "watch", "create", "delete"), "states and logs; create for the dry run", True),
    Need("", "pods/log", ("get",), "logs"),
    Need("", "pods/exec", ("get", "create"), "exec, cp, --fetch"),
    Need("", "pods/portforward", ("get", "create"), "port-forward"),
    Need("", "configmaps", ("get", "list", "create", "patch", "delete"), "the code that travels, arena-defaults"),
    Need("", "secrets", ("get", "create", "patch", "delete"), "values that look secret"),
    Need("", "services", ("get", "create", "patch", "delete"), "names of the replicas"),
    Need("", "persistentvolumeclaims", ("get", "list"), "--data, --output"),
    Need("", "events", ("list",), "why"),
    Need("", "resourcequotas", ("list",), "refusals before a submit"),
    Need("", "limitranges", ("list",), "doctor"),
)
OWNED = ("get", "create", "patch", "delete")
# What jobs of a kind bring beside what every job may need.
BESIDE = {"TrainJob": (Need("trainer.kubeflow.org", "trainingruntimes", OWNED, "the pods of a TrainJob"),)}


class Right(Struct, frozen=True):
    """A right and the verbs of it that are missing; None where that is not known."""

    need: Need
    missing: tuple[str, ...] | None


class Served(Struct, frozen=True):
    """A kind that arena makes, and in which version this cluster serves it (none: it does not)."""

    kind: str
    group: str
    operator: str
    version: str = ""


class Report(Struct, kw_only=True):
    """All that was found; `problems` keep jobs from being submitted."""

    context: str = ""
    server: str = ""
    version: str = ""
    user: str = ""
    namespace: str = ""
    security: str = ""
    rights: list[Right] = []
    kinds: list[Served] = []
    quotas: dict[str, dict[str, str]] = {}
    limits: list[str] = []
    defaults: list[str] = []
    image: str = ""
    local: str = ""
    programs: list[str] = []
    notes: list[str] = []
    problems: list[str] = []
    code: int = 0


def examine(client: Client) -> Report:
    """What there is: of the cluster where one is configured, of this machine always."""
    report = Report(local=_local(client), programs=programs(client.env), quotas={}, image=_image(client.settings))
    try:
        backend = _cluster(client)
    except ArenaError as error:
        _fail(report, error)
        return report
    if backend is None:
        report.notes.append("no cluster is configured: jobs run on this machine")
        return report
    try:
        _look(report, backend)
    except ArenaError as error:
        _fail(report, error)
    return report


def role(namespace: str, engines: Iterable[Any]) -> dict[str, Any]:
    """The Role with the rights that arena needs in one namespace, for these kinds.

    >>> role("team-a", [])["metadata"]
    {'name': 'arena-user', 'namespace': 'team-a'}
    """
    needs = [*NEEDS, *(need for engine in engines for need in needs_of(engine))]
    rules = [{"apiGroups": [one.group], "resources": [one.resource], "verbs": list(one.verbs)} for one in needs]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "arena-user", "namespace": namespace},
        "rules": rules,
    }


def needs_of(engine: Any) -> list[Need]:
    """The rights for the objects of one kind, and for what only they bring."""
    jobs = Need(engine.group, f"{engine.kind.lower()}s", EVERYTHING, f"jobs as {engine.kind}")
    return [jobs, *BESIDE.get(engine.kind, ())]


def programs(env: Mapping[str, str]) -> list[str]:
    """Every `arena` on the PATH, the one that runs first, each with what it is."""
    folders = dict.fromkeys(env.get("PATH", os.defpath).split(os.pathsep))
    found = [Path(folder) / "arena" for folder in folders if folder]
    return [f"{path} ({_language(path)})" for path in found if os.access(path, os.X_OK) and path.is_file()]


def as_json(report: Report) -> dict[str, Any]:
    """The report as data."""
    return {
        "schema": SCHEMA,
        "arena": {"version": __version__, "path": sys.argv[0], "programs": report.programs},
        "context": report.context,
        "server": report.server,
        "version": report.version,
        "user": report.user,
        "namespace": report.namespace,
        "podSecurity": report.security,
        "rights": {one.need.name: _right_json(one) for one in report.rights},
        "kinds": [_kind_json(one) for one in report.kinds],
        "quotas": report.quotas,
        "limits": report.limits,
        "defaults": report.defaults,
        "image": report.image,
        "local": report.local,
        "notes": report.notes,
        "problems": report.problems,
        "ok": not report.problems,
    }


def lines(report: Report) -> list[tuple[str, str]]:
    """The report as labels and texts; a label that stands on the line before is not said again."""
    found = [("arena", f"v{__version__}, Python, {sys.argv[0]}"), *(("on the PATH", one) for one in report.programs)]
    found += [("context", report.context), ("server", f"{report.server} {report.version}".strip())]
    found += [("user", report.user), ("namespace", report.namespace), ("pod security", report.security)]
    found += [("rights", _right_text(one)) for one in report.rights]
    found += [("kinds", _kind_text(one)) for one in report.kinds]
    for name, entries in report.quotas.items():
        found += [(f"quota {name}", f"{resource} {amount}") for resource, amount in entries.items()]
    found += [("limits", one) for one in report.limits]
    found += [("arena-defaults", ", ".join(report.defaults)), ("image", report.image), ("local", report.local)]
    found += [("note", one) for one in report.notes] + [("problem", one) for one in report.problems]
    return [(label, text) for label, text in found if text]


# --- the cluster ---------------------------------------------------------------------------------------------


def _cluster(client: Client) -> KubernetesBackend | None:
    from arena.backends.kubernetes.backend import KubernetesBackend

    if client.default == "local":
        return None
    backend = client.backend(client.default)
    assert isinstance(backend, KubernetesBackend)
    return backend


def _look(report: Report, backend: KubernetesBackend) -> None:
    from arena.engines import ENGINES, load
    from arena.kube.api import together

    access, namespace, api = backend.access, backend.namespace, backend.api
    report.context = f"{access.context} ({access.source})" if access.source else access.context
    report.server, report.user, report.namespace = access.server, access.user, namespace
    report.version = str(api.get("/version").get("gitVersion", ""))
    api.discovery.refresh()
    engines = [load(name) for name in ENGINES]
    report.kinds = [_kind(backend, engine) for engine in engines]
    served = [engine for engine, kind in zip(engines, report.kinds, strict=True) if kind.version]
    needs = [*NEEDS, *(need for engine in served for need in needs_of(engine))]
    questions: list[Callable[[], Any]] = [
        lambda: _who(backend),
        lambda: _rights(backend, needs),
        lambda: api.get(f"/api/v1/namespaces/{namespace}"),
        lambda: api.get(f"/api/v1/namespaces/{namespace}/resourcequotas"),
        lambda: api.get(f"/api/v1/namespaces/{namespace}/limitranges"),
        backend.layered,
        backend.read_defaults,
    ]
    who, rights, described, quotas, limits, layered, defaults = together(questions)
    report.user = who if isinstance(who, str) else report.user
    report.rights = rights if isinstance(rights, list) else []
    report.security = _security(described)
    report.quotas = dict(map(_quota, _items(quotas)))
    report.limits = [text for one in _items(limits) for text in _limit(one)]
    report.image = report.image if isinstance(layered, ArenaError) else _image(layered)
    report.defaults = [] if isinstance(defaults, ArenaError) else sorted(defaults)
    _note(report, {"quotas": quotas, "limits": limits, "rights": rights, "arena-defaults": defaults})
    _judge(report)


def _kind(backend: KubernetesBackend, engine: Any) -> Served:
    resource = backend.api.discovery.find(engine.kind, engine.group)
    return Served(engine.kind, engine.group, engine.operator, resource.version if resource else "")


def _who(backend: KubernetesBackend) -> str:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    said = backend.api.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    return str(said["status"]["userInfo"]["username"])


def _rights(backend: KubernetesBackend, needs: Sequence[Need]) -> list[Right]:
    """What may be done: by the rules that the server knows of, else asked verb by verb."""
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
    body = {**kind, "spec": {"namespace": backend.namespace}}
    status = backend.api.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)["status"]
    rules = status.get("resourceRules") or []
    if status.get("incomplete"):
        return [_asked(backend, need) for need in needs]
    return [Right(need, tuple(verb for verb in need.verbs if not allows(rules, need, verb))) for need in needs]


def allows(rules: Sequence[Mapping[str, Any]], need: Need, verb: str) -> bool:
    """Whether one of the rules gives the right to do this with every object of the resource."""
    wanted = (("verbs", verb), ("apiGroups", need.group), ("resources", need.resource))
    plain = [rule for rule in rules if not rule.get("resourceNames")]
    return any(all({word, "*"} & set(rule.get(key) or ()) for key, word in wanted) for rule in plain)


def _asked(backend: KubernetesBackend, need: Need) -> Right:
    from arena.kube.api import together

    answers = together([lambda verb=verb: _may(backend, need, verb) for verb in need.verbs])  # type: ignore[misc]
    missing = tuple(verb for verb, answer in zip(need.verbs, answers, strict=True) if answer is not True)
    return Right(need, None if any(isinstance(answer, ArenaError) for answer in answers) else missing)


def _may(backend: KubernetesBackend, need: Need, verb: str) -> bool:
    resource, _, sub = need.resource.partition("/")
    attributes = {"namespace": backend.namespace, "verb": verb, "group": need.group, "resource": resource}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    body = {**kind, "spec": {"resourceAttributes": {**attributes, "subresource": sub}}}
    said = backend.api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return said["status"].get("allowed") is True


def _security(described: Any) -> str:
    labels = {} if isinstance(described, ArenaError) else described["metadata"].get("labels") or {}
    found = labels.get("pod-security.kubernetes.io/enforce", "")
    return f"{found} (enforced)" if found else ""


def _items(answer: Any) -> list[Any]:
    return [] if isinstance(answer, ArenaError) else answer.get("items") or []


def _quota(one: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    status = one.get("status") or {}
    used = status.get("used") or {}
    return one["metadata"]["name"], {
        key: f"{used.get(key, 0)} of {hard}" for key, hard in status.get("hard", {}).items()
    }


def _limit(one: Mapping[str, Any]) -> list[str]:
    found = []
    for entry in (one.get("spec") or {}).get("limits") or ():
        amounts = [
            f"{key} {_amounts(entry[key])}" for key in ("min", "max", "defaultRequest", "default") if key in entry
        ]
        found.append(f"{entry.get('type', '')}: {'; '.join(amounts)}")
    return found


def _amounts(amounts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items())


def _note(report: Report, answers: Mapping[str, Any]) -> None:
    """What could not be asked."""
    for what, answer in answers.items():
        if isinstance(answer, ArenaError):
            report.notes.append(f"{what} may not be read: {answer.what}")


def _judge(report: Report) -> None:
    """Whether jobs can be submitted: as one kind at least that is served."""
    makes = [one for one in report.rights if one.need.verbs == EVERYTHING]
    able = [one for one in makes if one.missing is None or "create" not in one.missing]
    if report.rights and not able:
        report.problems.append(f"you may not create jobs in namespace {report.namespace!r}: arena doctor --role")
        report.code = ForbiddenError.exit_code
    unseen = [one for one in report.rights if one.need.must and one.missing and {"get", "list"} & set(one.missing)]
    for one in unseen:
        report.problems.append(f"you may not {' or '.join(one.missing or ())} {one.need.name}: {one.need.use}")
        report.code = report.code or ForbiddenError.exit_code


def _fail(report: Report, error: ArenaError) -> None:
    report.problems.append(f"{error.what}: {error.why}" if error.why else error.what)
    report.code = error.exit_code if isinstance(error, ForbiddenError) else BackendError.exit_code


# --- this machine --------------------------------------------------------------------------------------------


def _local(client: Client) -> str:
    if not client.settings.enabled("local.enabled"):
        return f"off (local.enabled: {client.settings.source('local.enabled')})"
    try:
        client.backend("local")
    except ArenaError as error:
        return f"not possible here: {error.why or error.what}"
    return f"jobs can run on this machine ({os.cpu_count()} cores)"


def _image(settings: Any) -> str:
    image = settings.text("image")
    return (
        f"{image} ({settings.source('image')})"
        if image
        else "by what the script imports; --image, or image in a setting"
    )


def _language(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError:
        return "cannot be read"
    return (
        "Go or another compiled program" if head[:4] == b"\x7fELF" else "a script" if head[:2] == b"#!" else "unknown"
    )


# --- words ---------------------------------------------------------------------------------------------------


def _right_text(one: Right) -> str:
    if one.missing is None:
        return f"{one.need.name}: not known"
    answer = f"no {', '.join(one.missing)}" if one.missing else "yes"
    return f"{one.need.name}: {answer} ({one.need.use})"


def _right_json(one: Right) -> dict[str, Any]:
    return {"needed": list(one.need.verbs), "missing": None if one.missing is None else list(one.missing)}


def _kind_text(one: Served) -> str:
    name = f"{one.kind} ({one.group})"
    return f"{name}: {one.version}" if one.version else f"{name}: not installed; {one.operator} brings it"


def _kind_json(one: Served) -> dict[str, Any]:
    return {"kind": one.kind, "group": one.group, "operator": one.operator, "version": one.version or None}
