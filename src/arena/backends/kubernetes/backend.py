"""The verbs, on a cluster."""

from __future__ import annotations

import builtins
import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from arena.backends.base import Context, LogLine, LogQuery, Plan, Query, Ref, Warnings, check_owner, not_gone, unheard
from arena.backends.kubernetes import defaults, planning, reading, travel
from arena.backends.kubernetes.reading import Found, Reader
from arena.engines import ENGINES, load, trainer
from arena.engines.base import RUN_LABEL, STOPPED_ANNOTATION, Engine, Kind, Served
from arena.engines.objects import Pod
from arena.errors import (
    AlreadyExistsError,
    ArenaError,
    BackendError,
    ForbiddenError,
    NotFoundError,
    SpecError,
    UnsupportedError,
)
from arena.job import Job
from arena.kube.errors import RefusedError
from arena.quantity import format_age, parse_duration
from arena.settings import Settings, home_folder, login_name
from arena.status import Seen

if TYPE_CHECKING:
    from arena.backends.kubernetes import copying
    from arena.backends.kubernetes.sending import Objects
    from arena.backends.kubernetes.submitting import Submission
    from arena.kube.api import Api
    from arena.kube.config import Access
    from arena.kube.discovery import Resource
    from arena.waits import Facts

T = TypeVar("T")

GONE = 120.0  # seconds that a delete waits for the last pod
HELD = 30.0  # seconds for whoever has a finalizer on the object
DELETING = ("foregroundDeletion", "orphan")  # the API server's own finalizers
LOOK = 0.25


class KubernetesBackend:
    """Jobs of one namespace of one cluster; context and namespace are fixed when it is made."""

    name = "kubernetes"
    notice = ""

    def __init__(self, settings: Settings, env: Mapping[str, str]) -> None:
        self.settings = settings
        self.env = dict(env)
        self.notes = Warnings()

    @functools.cached_property
    def access(self) -> Access:
        """How the cluster is reached."""
        if self.configured is None:
            raise BackendError(
                "no cluster configured", why="no kubeconfig has a current context", hint="-b local runs it here"
            )
        return self._asked_for(self.configured)

    @functools.cached_property
    def configured(self) -> Access | None:
        """The cluster that a kubeconfig or this pod's account names; None where there is none."""
        from arena.kube import config

        return config.find(
            kubeconfig=self.settings.text("kubeconfig") or "",
            context=self.settings.text("context") or "",
            env=self.env,
            home=home_folder(self.env),
        ) or config.in_cluster(self.env)

    def _asked_for(self, access: Access) -> Access:
        """The access as `--as`, `--as-group` and `--request-timeout` want it."""
        from arena.kube.config import Impersonate

        user, groups = self.settings.text("as"), self.settings.names("as_group")
        if groups and not user:
            raise SpecError("--as-group needs --as", why="a group alone is nobody")
        if user:
            who = Impersonate(user, tuple(groups))
            access = structs.replace(access, impersonate=who, user=user)
        if limit := self.settings.text("request_timeout"):
            access = structs.replace(access, timeout=parse_duration(limit))
        return access

    @functools.cached_property
    def api(self) -> Api:
        """The API server."""
        from arena.kube.api import Api

        return Api(self.access, cache=self._cache())

    def _cache(self) -> Any:
        home = home_folder(self.env)
        return home / ".cache" / "arena" if home else None

    @property
    def namespace(self) -> str:
        """The namespace of this command."""
        return planning.namespace_of(self.settings, self.configured)

    @functools.cached_property
    def reader(self) -> Reader:
        return Reader(self.api, self.namespace)

    @property
    def user(self) -> str:
        """Who asks: ARENA_USER, else the name in the kubeconfig, else the login name."""
        known = self.access.user if self.configured else ""
        return self.settings.text("user") or known or login_name()

    def plan(self, job: Job, context: Context) -> Plan:
        """What `submit` would send; what is remembered of the cluster and spoils it is read again: it may be old."""
        values = self._defaults(context)
        try:
            return self._planned(job, context, values)
        except ArenaError as error:
            if context.dry == "client" or not self._is_old(error, job, context, values):
                raise
        return self._planned(job, context, self._defaults(context))

    def _is_old(self, error: ArenaError, job: Job, context: Context, values: Mapping[str, str]) -> bool:
        """Whether a job cannot be planned because of what was remembered; now it is known anew."""
        if isinstance(error, UnsupportedError) and self.api.discovery.renew():
            return True
        return self._spoil(job, context, values) and self.read_defaults() != values

    def _spoil(self, job: Job, context: Context, values: Mapping[str, str]) -> bool:
        """Whether a job that cannot be planned with these defaults could be without any."""
        try:
            self._planned(job, context, {})
        except ArenaError:
            return False
        return bool(values)

    def plan_object(self, objects: Objects, context: Context) -> Plan:
        """The submit of an operator's own object, as it stands in a file."""
        from arena.backends.kubernetes.sending import plan_of

        return plan_of(objects, context, self.api, self.namespace)

    def _planned(self, job: Job, context: Context, values: Mapping[str, str]) -> Plan:
        settings = defaults.layered(self.settings, self.namespace, values)
        recorded = self.recorded(context)
        parcel = travel.pack(job, context, settings, namespace=self.namespace, recorded=recorded)
        plan = planning.make_plan(job, context, settings, self._known(context), self.namespace, self.user, parcel)
        notes = (*plan.notes, *defaults.strangers(self.namespace, values))
        context = travel.standing(context, recorded) if recorded else context
        return structs.replace(plan, notes=notes, context=context, data=structs.replace(plan.data, defaults=values))

    def recorded(self, context: Context) -> travel.Recorded | None:
        """The code of an earlier run, where a rerun takes it; nothing is remembered here."""
        return None

    @functools.cached_property
    def memory(self) -> defaults.Memory:
        """The namespace's defaults as they were last time."""
        return defaults.Memory(self._cache(), self.access.asker, self.namespace)

    def _defaults(self, context: Context) -> Mapping[str, str]:
        """The namespace's defaults: remembered, else read, unless nobody may be asked."""
        if context.dry == "client" and self.configured is None:
            return {}
        values = self.memory.recall()
        if values is not None or context.dry == "client":
            return values or {}
        return self.read_defaults()

    def read_defaults(self) -> Mapping[str, str]:
        """The namespace's defaults as they are now."""
        values = defaults.read(self.api, self.namespace)
        self.memory.keep(values)
        return values

    def layered(self) -> Settings:
        """The settings with those of the namespace."""
        return defaults.layered(self.settings, self.namespace, self.read_defaults())

    def _known(self, context: Context) -> Served:
        asked = context.served or (planning.assumed() if context.dry == "client" else {})
        return asked or self.served()

    def asked(self, plan: Plan) -> Plan:
        """The plan with the job object as the server would make it; nothing is made."""
        from arena.backends.kubernetes.sending import applicable

        thing, plan = self._current(plan, lambda submission: submission.ask())
        return structs.replace(plan, steps=(*plan.data.helpers, applicable(thing)))

    def _current(
        self, plan: Plan, act: Callable[[Submission], T], committed: Callable[[], None] = unheard
    ) -> tuple[T, Plan]:
        """What comes of a plan, and the plan: another one, once each, where the namespace is not as it was made for."""
        from arena.backends.kubernetes import security
        from arena.backends.kubernetes.asking import ChangedError
        from arena.backends.kubernetes.refusals import PodSecurityError
        from arena.backends.kubernetes.submitting import Submission

        submission = Submission(self.api, plan, self.read_defaults, committed)
        try:
            done = act(submission)
        except ChangedError:
            plan = self.plan(plan.made_of, plan.context)
            self.notes.add(f"the namespace's defaults have changed: {', '.join(plan.facts)}")
            return self._current(plan, act, committed)
        except PodSecurityError as error:
            if not security.can_restrict(plan, error.level):
                raise
            self.notes.add(security.NOTE.format(self.namespace))
            return self._current(security.restrict(plan), act, committed)
        for line in submission.warnings:
            self.notes.add(line)
        return done, plan

    def served(self) -> Served:
        """The kinds of ours that this cluster serves."""
        found = {}
        for engine in map(load, ENGINES):
            if resource := self.api.discovery.find(engine.kind, engine.group, engine.version):
                properties = self._properties(resource) if engine.group != "batch" else frozenset()
                found[f"{engine.kind}.{engine.group}"] = Kind(resource.version, properties)
        return found

    def _properties(self, resource: Resource) -> frozenset[str]:
        """The fields of a kind's spec by which its generation is told; none where no schema is published."""
        from arena.kube.errors import UnpublishedError

        try:
            return self.api.discovery.properties(resource)
        except UnpublishedError:
            return frozenset()

    def submit(
        self, plan: Plan, *, replace: bool = False, force: bool = False, committed: Callable[[], None] = unheard
    ) -> Ref:
        """Ask, then make helpers, job and owners. Exactly one of two submits of a name wins."""
        try:
            return self._current(plan, _carry_out, committed)[0]
        except AlreadyExistsError as error:
            seen = self._holder(plan)
            if seen is None:
                raise
            if not replace or not (seen.state.final or force):
                raise self._taken(seen, plan) from error
        self.delete(Ref.of(seen), force=force)
        return self._current(plan, _carry_out, committed)[0]

    def _holder(self, plan: Plan) -> Seen | None:
        try:
            return reading.seen(self.reader.whole(plan.data.engine, plan.name))
        except NotFoundError:
            return None

    def _taken(self, seen: Seen, plan: Plan) -> AlreadyExistsError:
        other = "another --name" if plan.job else "another name in the file"
        who = "you" if seen.user == self.user else seen.user or "somebody"
        age = format_age((datetime.now(UTC) - seen.observed.created).total_seconds())
        if seen.leaving:
            what = f"job {seen.name!r} in namespace {seen.namespace!r} is not gone yet: {seen.leaving}"
            return AlreadyExistsError(what, hint=f"wait until it is gone, or {other}")
        how = "--replace --force" if not seen.state.final else "--replace"
        kind = load(seen.engine).kind
        return AlreadyExistsError(
            f"job {seen.name!r} already exists in namespace {seen.namespace!r}",
            why=f"{kind} {seen.name!r} (run {seen.run_id}) was submitted {age} ago by {who} and is {seen.state.name}",
            hint=f"arena delete {seen.name}, {how}, or {other}",
        )

    def find(self, name: str, *, gone: bool = False) -> Ref:
        """The job that NAME or kind/NAME means."""
        kind, _, name = name.rpartition("/")
        found = self.reader.named(name, self._kinds(kind))
        if not found:
            raise NotFoundError(f"job {name!r} not found in namespace {self.namespace!r}", hint="arena list")
        if len(found) > 1:
            words = ", ".join(one.engine.name for one in found)
            raise SpecError(f"{name!r} is the name of several jobs: {words}", hint=f"-T {found[0].engine.name}")
        return _ref(found[0])

    def _kinds(self, word: str) -> builtins.list[Engine]:
        served = self.reader.served()
        return [engine for engine in served if engine.name == trainer(word)] if word else served

    def get(self, ref: Ref) -> Seen:
        """The job as it is now."""
        return reading.seen(self.whole(ref))

    def manifest(self, ref: Ref) -> dict[str, Any]:
        """The job object as the server has it."""
        found: dict[str, Any] = self.api.get(self.reader.path(load(ref.kind), ref.name))
        return found

    def whole(self, ref: Ref) -> Found:
        """The object and pods of a job; NotFoundError where another job has taken its name."""
        found = self.reader.whole(load(ref.kind), ref.name)
        if ref.uid and found.thing.metadata.uid != ref.uid:
            raise NotFoundError(f"job {ref.name!r} (run {ref.run_id}) is gone, another one has its name")
        return found

    def facts(self, ref: Ref) -> Facts | None:
        """What the cluster knows of a job beside its object and pods; nothing once it is gone."""
        from arena.backends.kubernetes.facts import gather

        try:
            return gather(self.api, self.whole(ref))
        except NotFoundError:
            return None

    def list(self, query: Query, warnings: Warnings) -> Iterator[Seen]:
        """The jobs that match, newest first; kinds that may not be read become warnings."""
        yield from self._listed(self._all(query, warnings)[1], query, warnings)

    def changes(self, query: Query, warnings: Warnings) -> Iterator[builtins.list[Seen]]:
        """The jobs that match, now and at each change: one watch per kind that may be read, and one of the pods."""
        from arena.backends.kubernetes.watching import QUIET, Board

        reader, (found, failed) = self._all(query, warnings)
        yield [*self._listed((found, failed), query, warnings)]
        unread = [engine and engine.name for engine, _ in failed]
        read = [engine for engine in (*reader.served(), None) if (engine and engine.name) not in unread]
        with Board(reader, read) as board:
            spent = 0.0
            while True:
                board.wait(max(QUIET, spent))  # of many jobs that change all the time at most half the time is spent
                begun = time.monotonic()
                seens = [*self._listed(board.all(), query, warnings)]
                spent = time.monotonic() - begun
                yield seens

    def _listed(self, listed: reading.All, query: Query, warnings: Warnings) -> Iterator[Seen]:
        found, failed = listed
        for engine, error in failed:
            what = f"{engine.kind}s" if engine else "pods"
            refused = isinstance(error, ForbiddenError | NotFoundError)
            warnings.add(f"{what} are left out: {error.what}", code=error.exit_code, failed=not refused)
        for one in sorted(found, key=lambda one: str(one.thing.metadata.creation_timestamp), reverse=True):
            seen = reading.seen(one)
            if matches(seen, one.thing.metadata.labels, query):
                yield seen

    def _all(self, query: Query, warnings: Warnings) -> tuple[Reader, reading.All]:
        """Every job, and who read them; where no kind may be listed in all namespaces, those of this one."""
        kinds = self.reader.served()
        if query.everywhere:
            everywhere = Reader(self.api, "")
            found, failed = everywhere.all(kinds)
            if len(failed) <= len(kinds) or not isinstance(failed[0][1], ForbiddenError):
                return everywhere, (found, failed)
            why = failed[0][1]
            warnings.add(f"only namespace {self.namespace!r} is listed: {why.what}", code=why.exit_code)
        found, failed = self.reader.all(kinds)
        if len(failed) > len(kinds):  # nothing at all: an empty list would say that there are no jobs
            raise self._nothing_listed(failed[0][1])
        return self.reader, (found, failed)

    def _nothing_listed(self, error: ArenaError) -> ArenaError:
        if not isinstance(error, RefusedError):
            return error
        what = f"you may not list jobs in namespace {self.namespace!r}"
        return ForbiddenError(what, why=error.why or error.what, hint=error.hint)

    def watch(self, ref: Ref, until: Sequence[float] = ()) -> Iterator[Seen]:
        """The job now, then again at each change and when a time of `until` is reached, until it has ended."""
        from arena.backends.kubernetes.watching import Watch

        with Watch(self.reader, ref, self.whole(ref)) as watch:
            due = sorted(until)
            while True:
                seen = watch.seen()
                yield seen
                if seen.state.final or seen.deleted:
                    return
                watch.wait(due[0] if due else None)
                due = [when for when in due if time.monotonic() < when]

    def logs(self, ref: Ref, query: LogQuery) -> Iterator[LogLine]:
        """The lines of the replicas."""
        from arena.backends.kubernetes.logs import read_logs

        return read_logs(self, ref, query)

    def now(self) -> datetime:
        """The time by the cluster's clock: this machine's may be wrong."""
        try:
            return self.api.now()
        except BackendError:  # no cluster: what is read comes from the record
            return datetime.now(UTC)

    def has_code(self, ref: Ref) -> bool:
        """Whether the run's code was recorded."""
        return False

    def exec(self, ref: Ref, replica: str, words: Sequence[str]) -> int:
        """Run a command in a replica's container, on this terminal; its exit code."""
        found = self.whole(ref)
        seen = reading.seen(found)
        one = next((r for r in seen.observed.replicas if r.name == replica), None)
        if one is None or one.started is None or one.ended:
            raise BackendError(f"job {seen.name!r} is {seen.state.name}", why=f"{replica or 'no replica'} does not run")
        path = f"{reading.PODS.format(self.namespace)}/{one.pod}/exec"
        stdin = None if sys.stdin is None or sys.stdin.closed else sys.stdin.buffer
        return self.api.exec(
            path,
            words,
            container=found.engine.container,
            stdin=stdin,
            stdout=sys.stdout.buffer,
            stderr=sys.stderr.buffer,
            tty=sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty(),
        )

    def copy(self, ref: Ref, replica: str, path: str, dest: str) -> Sequence[str]:
        """Copy a file or folder out of a running container; the lines of what in it was refused."""
        from arena.backends.kubernetes import copying

        one = copying.ready(self.get(ref), replica)
        return self._pod(ref, one.pod).copy(path, dest)

    def fetch(self, ref: Ref, paths: Sequence[str], folder: str) -> Sequence[str]:
        """Wait for the end of rank 0's program, bring these paths, and let its container go."""
        from arena.backends.kubernetes import copying

        return copying.Fetch(functools.partial(self._pod, ref), paths, folder).until_end(self.watch(ref))

    def _pod(self, ref: Ref, pod: str) -> copying.Pod:
        from arena.backends.kubernetes import copying

        path = f"{reading.PODS.format(ref.namespace or self.namespace)}/{pod}"
        return copying.Pod(self.api, path, load(ref.kind).container)

    def stop(self, ref: Ref) -> Seen:
        """End the job and keep its object; returns when its pods are gone."""
        seen = self.get(ref)
        if seen.state.final:
            return seen
        engine = load(ref.kind)
        mark = f"{datetime.now(UTC).isoformat(timespec='seconds')} by {self.user}"
        patch = {**engine.stopped(), "metadata": {"annotations": {STOPPED_ANNOTATION: mark}}}
        self.api.patch(self.reader.path(engine, ref.name), patch)
        self._until_gone(ref)
        return self.get(ref)

    def delete(self, ref: Ref, *, force: bool = False, wait: bool = True, timeout: float | None = None) -> Seen:
        """End the job and take it from the list; returns when its pods are gone, unless nobody waits for them."""
        seen = self.get(ref)
        if seen.deleted:
            return seen
        check_owner(seen, self.user, "delete", force=force)
        self.api.delete(self.reader.path(load(ref.kind), ref.name), uid=seen.uid)
        if wait:
            self._until_gone(ref, whole=True, timeout=timeout)
        return reading.left(seen, datetime.now(UTC))

    def _until_gone(self, ref: Ref, *, whole: bool = False, timeout: float | None = None) -> None:
        """Return when its pods are gone, and with `whole` its object too; an error when that takes too long."""
        engine, begun = load(ref.kind), time.monotonic()
        while True:
            holders = self._holders(engine, ref) if whole else None
            pods = self._living(engine, ref)
            if holders is None and not pods:
                return
            waited = time.monotonic() - begun
            if timeout is not None and waited >= timeout:
                raise not_gone(ref.name, timeout, _left_of(pods))
            if timeout is None and holders and waited > HELD:
                raise _held(ref, engine, holders)
            if timeout is None and waited > GONE:
                raise _lasting(ref, pods)
            time.sleep(LOOK if timeout is None else min(LOOK, timeout - waited))

    def _holders(self, engine: Engine, ref: Ref) -> builtins.list[str] | None:
        """The finalizers that keep the job's object; None once it is gone."""
        try:
            metadata = self.api.get(self.reader.path(engine, ref.name), engine.thing).metadata
        except NotFoundError:
            return None
        if ref.uid and metadata.uid != ref.uid:
            return None
        return [name for name in metadata.finalizers if name not in DELETING]

    def _living(self, engine: Engine, ref: Ref) -> builtins.list[Pod]:
        try:
            pods = self.reader.pods(engine, ref.name)
        except RefusedError as error:
            self.notes.add(f"{ref.name}: whether its pods have ended is not seen: {error.what}")
            return []
        mine = [
            pod for pod in pods if ref.uid in {"", *_owners(pod)} or pod.metadata.labels.get(RUN_LABEL) == ref.run_id
        ]
        return [pod for pod in mine if pod.status.phase in ("Running", "Pending") or pod.metadata.deletion_timestamp]


def _carry_out(submission: Submission) -> Ref:
    return submission.carry_out()


def _held(ref: Ref, engine: Engine, holders: Sequence[str]) -> BackendError:
    names = ", ".join(holders)
    return BackendError(
        f"job {ref.name!r} is marked for deletion and not gone: its {engine.kind} is held by finalizer {names}",
        why="whoever has set it must let go, and its pods stay until then",
        hint="an administrator can remove the finalizer: kubectl edit, metadata.finalizers",
    )


def _lasting(ref: Ref, pods: Sequence[Pod]) -> BackendError:
    return BackendError(
        f"job {ref.name!r} is deleted, but not all that it made is gone after {GONE:.0f} s",
        why=_left_of(pods),
        hint="where a node is lost, kubectl delete pod NAME --force --grace-period=0" if pods else "",
    )


def _left_of(pods: Sequence[Pod]) -> str:
    places = [f"{pod.metadata.name} (node {pod.spec.node_name or 'unknown'})" for pod in pods[:3]]
    return f"still there: {', '.join(places)}" if places else "its object is still there"


def _owners(pod: Pod) -> set[str]:
    return {owner.uid for owner in pod.metadata.owner_references}


def _ref(found: Found) -> Ref:
    metadata = found.thing.metadata
    return Ref(
        name=metadata.name,
        run_id=metadata.labels.get(RUN_LABEL) or metadata.uid,
        namespace=metadata.namespace,
        kind=found.engine.name,
        uid=metadata.uid,
    )


def matches(seen: Seen, labels: Mapping[str, str], query: Query) -> bool:
    """Whether a job is one of those asked for."""
    return (
        (not query.name or seen.name == query.name)
        and (not query.states or seen.state.name in query.states)
        and (not query.user or seen.user == query.user)
        and all(labels.get(key) == value for key, value in query.labels.items())
    )
