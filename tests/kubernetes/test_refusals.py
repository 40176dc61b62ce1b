"""What the server says no with becomes one error: its class, its name for what was asked, and the flag."""

import pytest

from arena.backends.kubernetes import fitting
from arena.backends.kubernetes.fitting import Asked, Node, Quota
from arena.backends.kubernetes.refusals import Answers, Place, flag_of, is_unseen, refusal, told
from arena.errors import AlreadyExistsError, ArenaError, BackendError, ForbiddenError, NotFoundError, SpecError
from arena.kube.config import Access
from arena.kube.errors import Answer, SilentError
from arena.kube.errors import refusal as answered

PLACE = Place("team-a", "PyTorchJob", "training-operator")
ACCESS = Access(server="https://s")


def error(code: int, message: str, reason: str = "Forbidden") -> ArenaError:
    return answered(Answer(code, reason, message, kind="Status"), ACCESS)


RIGHT = 'jobs.batch is forbidden: User "alice" cannot create resource "jobs" in API group "batch" in the namespace "b"'
QUOTA = (
    'pods "x" is forbidden: exceeded quota: team, requested: requests.cpu=2,requests.nvidia.com/gpu=24, '
    "used: requests.cpu=1,requests.nvidia.com/gpu=0, limited: requests.cpu=8,requests.nvidia.com/gpu=16"
)
SECURITY = (
    'pods "x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container '
    '"main" must set securityContext.allowPrivilegeEscalation=false), runAsNonRoot != true (pod or container "main" '
    "must set securityContext.runAsNonRoot=true)"
)
HOST = 'pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
DOWN = (
    'Internal error occurred: failed calling webhook "validator.pytorchjob.training-operator.kubeflow.org": failed to '
    'call webhook: Post "https://training-operator.kubeflow.svc:443/validate?timeout=10s": no endpoints available for '
    'service "training-operator"'
)
AGAINST = 'admission webhook "v.kyverno.svc" denied the request: images come from reg.example'
LIMIT = (
    'pods "x" is forbidden: [maximum cpu usage per Container is 2, but limit is 4, maximum memory usage per Container '
    "is 1Gi, but limit is 8Gi]"
)
LEAST = 'pods "x" is forbidden: minimum memory usage per Container is 1Gi, but request is 64Mi'
NEEDS = 'pods "x" is forbidden: failed quota: team: must specify requests.cpu for: main; requests.memory for: main'
NAME = 'PyTorchJob.kubeflow.org "3d" is invalid: metadata.name: Invalid value: "3d": must start with a letter'
INVALID = 'Job.batch "x" is invalid: spec.template.spec.containers[0].image: Required value'
STRICT = 'PyTorchJob in version "v1" cannot be handled as a PyTorchJob: strict decoding error: unknown field "spec.bla"'
CASES = [
    (403, RIGHT, ForbiddenError, ["create jobs.batch", "namespace 'b'", "arena doctor --role"]),
    (403, QUOTA, ForbiddenError, ["'team'", "requests.nvidia.com/gpu: 24 asked, 0 used of 16", "--gpus", "--cpu"]),
    (403, SECURITY, ForbiddenError, ["restricted", "allowPrivilegeEscalation, runAsNonRoot", "--patch"]),
    (403, HOST, ForbiddenError, ["baseline", "--host-network"]),
    (500, DOWN, BackendError, ["training-operator does not answer", "webhook", "namespace kubeflow"]),
    (400, AGAINST, SpecError, ["v.kyverno.svc", "images come from reg.example"]),
    (403, LIMIT, ForbiddenError, ["maximum cpu usage", "maximum memory usage", "--cpu --memory"]),
    (403, LEAST, ForbiddenError, ["minimum memory usage", "--memory"]),
    (403, NEEDS, ForbiddenError, ["'team'", "requests.cpu", "--cpu"]),
    (403, 'pods "x" is forbidden: no PriorityClass with name high was found', NotFoundError, ["--priority", "'high'"]),
    (403, 'serviceaccount "foo" not found', NotFoundError, ["ServiceAccount 'foo'"]),
    (404, 'namespaces "x" not found', NotFoundError, ["namespace 'x'", "-n"]),
    (422, NAME, SpecError, ["--name", "3d", "must start with a letter"]),
    (422, INVALID, SpecError, ["spec.template.spec.containers[0].image: Required value"]),
    (400, STRICT, SpecError, ["spec.bla", "--set"]),
]


@pytest.mark.parametrize(("code", "said", "kind", "words"), CASES, ids=[said[:40] for _, said, *_ in CASES])
def test_the_server_s_words_in_arena_s(code, said, kind, words):
    found = told(error(code, said), PLACE)
    assert isinstance(found, kind)
    assert [word for word in words if word not in str(found)] == []


def test_a_quota_that_is_too_small_for_ever_is_not_waited_for():
    assert "wait" not in told(error(403, QUOTA), PLACE).hint
    assert "wait" in told(error(403, QUOTA.replace("=24", "=12").replace("gpu=0", "gpu=8")), PLACE).hint


def test_a_taken_name_and_a_silent_server_stay_as_they_are():
    taken = error(409, 'jobs.batch "x" already exists', "AlreadyExists")
    assert told(taken, PLACE) is taken
    assert isinstance(taken, AlreadyExistsError)
    silent = SilentError("no answer")
    assert refusal(Answers(thing=silent), PLACE) is silent


# --- what an operator has not seen yet ---

UNSEEN = (
    'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: spec.runtimeRef: Invalid value: '
    'v1alpha1.RuntimeRef{Name:"m-7k3f"}: TrainingRuntime.trainer.kubeflow.org "m-7k3f" not found: specified '
    "trainingRuntime must be created before the TrainJob is created"
)
RUNTIME = {"kind": "TrainingRuntime", "metadata": {"name": "m-7k3f"}}


def test_a_job_that_waits_for_its_own_helper_is_not_refused():
    assert is_unseen(error(403, UNSEEN), [{"kind": "Secret", "metadata": {"name": "m-7k3f"}}, RUNTIME])
    assert not is_unseen(error(403, UNSEEN), [{"kind": "TrainingRuntime", "metadata": {"name": "other"}}])
    assert not is_unseen(error(403, UNSEEN), [])
    assert not is_unseen(error(400, AGAINST), [RUNTIME])
    assert not is_unseen({"kind": "TrainJob"}, [RUNTIME])


def test_who_may_not_make_runtimes_reads_what_goes_without():
    said = RIGHT.replace("jobs.batch", "trainingruntimes.trainer.kubeflow.org").replace('"jobs"', '"trainingruntimes"')
    assert "engines: job" in told(error(403, said), PLACE).hint


# --- all answers together ------------------------------------------------------------------------------------

NO_PODS = error(403, 'pods is forbidden: User "a" cannot create resource "pods" in API group "" in the namespace "b"')


def pod(**requests: str):
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}]}}


def quota(hard: dict, used: dict | None = None, **spec):
    return fitting_quota({"metadata": {"name": "team"}, "spec": spec, "status": {"hard": hard, "used": used or {}}})


def fitting_quota(plain: dict) -> Quota:
    import msgspec

    return msgspec.convert(plain, Quota)


def answers(*quotas: Quota, **more) -> Answers:
    given = {"thing": {}, "pods": [pod(**{"nvidia.com/gpu": "8"})], "counts": [3], "quotas": quotas}
    return Answers(**{**given, **more})


def test_all_replicas_count_against_the_quota():
    found = refusal(answers(quota({"requests.nvidia.com/gpu": "16"})), PLACE)
    assert isinstance(found, ForbiddenError)
    assert "requests.nvidia.com/gpu: 24 asked, 0 used of 16" in str(found)
    assert "--workers or --gpus" in found.hint
    assert "wait" not in found.hint


def test_what_others_use_counts_too_and_may_be_waited_for():
    found = refusal(answers(quota({"requests.nvidia.com/gpu": "32"}, {"requests.nvidia.com/gpu": "16"})), PLACE)
    assert found is not None
    assert "24 asked, 16 used of 32" in str(found)
    assert "wait" in found.hint


@pytest.mark.parametrize(
    "given",
    [
        answers(quota({"requests.nvidia.com/gpu": "24"})),
        answers(quota({"requests.nvidia.com/gpu": "1"}, scopes=["BestEffort"])),
        answers(quota({"requests.nvidia.com/gpu": "1"}), queued=True),
        answers(quotas=error(403, RIGHT)),
        answers(pods=[NO_PODS]),
        answers(named=[(("Secret", "s"), error(403, RIGHT))]),
    ],
    ids=["fits", "scoped", "queued", "quotas may not be read", "pods may not be made", "secrets may not be read"],
)
def test_what_is_nobody_s_refusal(given):
    assert refusal(given, PLACE) is None


def test_a_claim_that_is_not_there():
    found = refusal(answers(named=[(("PersistentVolumeClaim", "c"), error(404, "…", "NotFound"))]), PLACE)
    assert isinstance(found, NotFoundError)
    assert "--data or --output: there is no claim 'c' in namespace 'team-a'" in str(found)


def test_flags():
    assert [flag_of(name) for name in ("limits.memory", "count/pods", "requests.amd.com/gpu", "count/jobs.batch")] == [
        "--memory", "--workers", "--device", "",
    ]  # fmt: skip


# --- nodes ---------------------------------------------------------------------------------------------------


def node(**given):
    import msgspec

    return msgspec.convert(
        {"metadata": {"labels": given.get("labels", {})}, "status": {"allocatable": given["has"]}}, Node
    )


def test_no_node_is_large_enough():
    nodes = [node(has={"nvidia.com/gpu": "8", "cpu": "72"}), node(has={"nvidia.com/gpu": "4", "cpu": "16"})]
    asked = Asked(1, {"cpu": 73.0, "nvidia.com/gpu": 12.0})
    assert fitting.too_large(asked, nodes) == [
        "73 cpu are asked for, the largest node has 72",
        "12 nvidia.com/gpu are asked for, the largest node has 8",
    ]
    assert fitting.too_large(Asked(1, {"nvidia.com/gpu": 8.0}), nodes) == []
    assert fitting.too_large(asked, []) == []


def test_no_node_has_the_labels():
    nodes = [node(has={}, labels={"zone": "a"}), node(has={}, labels={"zone": "b"})]
    assert fitting.not_matching(Asked(1, {}, {}, {"zone": "x"}), nodes) == "0 of 2 nodes have zone=x"
    assert fitting.not_matching(Asked(1, {}, {}, {"zone": "b"}), nodes) == ""


def test_init_containers_are_not_added():
    plain = pod(cpu="500m")
    plain["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "2"}}}]
    assert fitting.asked_by(plain, 2).requests == {"cpu": 2.0}
