"""The stage of a cluster's day: who has which rights there, what is undone, and where the image comes from."""

from collections.abc import Iterator

import pytest
from testbed.bed import Bed
from testbed.images import WORK

from journeys import on_cluster
from journeys.stage import Stage, stage
from journeys.team import Team, team

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(120)]


@pytest.fixture
def place() -> Iterator[Stage]:
    with stage("team") as made:
        yield made


@pytest.fixture
def people(node: Bed, place: Stage) -> Iterator[Team]:
    with team(node, place) as made:
        yield made


def test_everyone_has_kubectl_and_an_own_kubeconfig(people: Team) -> None:
    people.move_in(people.place.me, "alice")
    people.move_in(people.place.others["bob"], "bob")
    for who in ("", "bob", "admin"):
        assert people.place.must("kubectl -n team-a get configmap arena-defaults -o name", who=who)
    name = "kubectl auth whoami -o jsonpath={.status.userInfo.username}"
    assert [people.place.must(name, who=who) for who in ("", "bob", "admin")] == ["alice", "bob", "admin"]


def test_what_a_day_leaves_is_gone_for_the_next_one(node: Bed, place: Stage) -> None:
    with team(node, place) as people:
        people.kubectl("create", "job", "left", f"--image={WORK}", "--", "sleep", "600")
        people.kubectl("create", "secret", "generic", "left")
    assert people.kubectl("get", "jobs,pods,secrets", "-o", "name") == ""
    assert people.kubectl("get", "configmaps", "-o", "name").split() == ["configmap/kube-root-ca.crt"]


def test_room_for_many_pods_is_there_for_the_day_only(node: Bed, place: Stage) -> None:
    def room() -> str:
        return node.kubectl("-n", "team-a", "get", "quota", "team", "-o", "jsonpath={.spec.hard.pods}")

    usual = room()
    with team(node, place) as people:
        on_cluster.many_pods(people)
        assert room() == "100"
    assert room() == usual


def test_the_pipeline_may_not_list_one_kind(people: Team) -> None:
    on_cluster.pipeline(people)
    assert people.place.must("$E kubectl get jobs,pytorchjobs") == ""
    people.place.must("! $E kubectl get tfjobs")
    people.place.must("! $E0 kubectl get jobs")


def test_a_pod_that_pulls_always_gets_the_work_image(people: Team) -> None:
    on_cluster.alice(people)
    people.place.must("kubectl run pulls --image=$IMAGE --image-pull-policy=Always --restart=Never -- true")
    people.place.must("kubectl wait --for=jsonpath={.status.phase}=Succeeded pod/pulls --timeout=60s")
