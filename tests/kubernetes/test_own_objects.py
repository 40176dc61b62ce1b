"""An operator's own object out of a file: it is asked for, made, refused and undone like any job of arena's."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from testbed.faults import Fault, FaultProxy

from cli.conftest import Result
from cluster.spaces import Object, Space, refused

pytestmark = pytest.mark.cluster

CONF = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {"lr": "0.1"}}


def job(name: str = "own", *, labels: Mapping[str, str] | None = None, **container: Any) -> Object:
    """A Job as somebody writes it by hand, with a null in it."""
    main = {"name": "c", "image": "none", "envFrom": [{"configMapRef": {"name": "conf"}}], **container}
    template = {"metadata": {"creationTimestamp": None}, "spec": {"restartPolicy": "Never", "containers": [main]}}
    spec = {"parallelism": 2, "completions": 2, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}


def submit(space: Space, *objects: Object, more: tuple[str, ...] = ()) -> Result:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return space.cli("submit", "-f", str(space.cli.file("own.json", text)), *more)


def limited(space: Space, **hard: str) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    space.apply(quota)
    space.bed.wait("the quota", lambda: space.kubectl("get", "quota", "q", "-o", "jsonpath={.status.hard}"))


def there(space: Space) -> list[str]:
    found = space.kubectl("get", "jobs,configmaps", "-o", "name").split()
    return [one for one in found if one != "configmap/kube-root-ca.crt"]


def test_a_quota_counts_all_its_pods_before_anything_is_made(space: Space) -> None:
    limited(space, **{"requests.cpu": "3"})
    result = submit(space, CONF, job(resources={"requests": {"cpu": 2}}))
    refused(result, 7, "quota 'q'", "requests.cpu: 4 asked, 0 used of 3", "lower pods or cpu")
    assert "--" not in result.stderr
    assert there(space) == []


def test_a_quota_does_not_count_what_a_queue_holds_back(space: Space) -> None:
    limited(space, pods="1")
    assert submit(space, CONF, job(), more=("--set", "spec.suspend=true")).exit_code == 0


def test_a_claim_that_is_not_there(space: Space) -> None:
    thing = job()
    thing["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}]
    result = submit(space, CONF, thing)
    refused(result, 3, "there is no claim 'gone'")
    assert "--data" not in result.stderr
    assert there(space) == []


def test_its_helpers_are_taken_back_when_it_is_refused(space: Space, proxy: FaultProxy) -> None:
    proxy.add(Fault(method="POST", path=r"/jobs\?(?!.*dryRun)", status=500))
    refused(submit(space, CONF, job()), 6)
    assert there(space) == []


def test_what_cannot_be_taken_back_is_told(space: Space, proxy: FaultProxy) -> None:
    proxy.add(Fault(method="POST", path=r"/jobs\?(?!.*dryRun)", status=500))
    proxy.add(Fault(method="DELETE", path="/configmaps/conf", status=403))
    refused(submit(space, CONF, job()), 6, "what was made for it was not removed")
    assert there(space) == ["configmap/conf"]


def test_a_taken_name_says_whose_and_since_when(space: Space) -> None:
    assert submit(space, CONF, job()).exit_code == 0
    refused(submit(space, CONF, job()), 4, "job 'own' already exists", "s ago by you", "--replace --force")
    replaced = submit(space, CONF, job(), more=("--replace", "--force"))
    assert replaced.exit_code == 0, replaced.stderr


def test_a_helper_that_is_there_is_used_where_it_is_the_same(space: Space) -> None:
    space.apply(CONF)
    assert submit(space, CONF, job()).exit_code == 0
    space.cli("delete", "own", "--force")
    assert there(space) == ["configmap/conf"]
    refused(submit(space, {**CONF, "data": {"lr": "0.2"}}, job("other")), 4, "ConfigMap 'conf'", "another data.lr")
    assert there(space) == ["configmap/conf"]


def test_what_a_dry_run_printed_is_owned_by_its_job(space: Space) -> None:
    made = space.cli("run", "--dry-run", "--name", "printed", "-w", "2", "-o", "json", "true")
    assert submit(space, *made.json["items"]).exit_code == 0
    service = json.loads(space.kubectl("get", "service", "printed", "-o", "json"))
    assert [owner["name"] for owner in service["metadata"]["ownerReferences"]] == ["printed"]


def test_it_is_remembered(space: Space) -> None:
    assert submit(space, CONF, job()).exit_code == 0
    (past,) = space.cli("history", "-o", "json").json
    assert (past["name"], past["engine"], past["managedBy"]) == ("own", "job", "")
    space.cli("delete", "own", "--force")
    refused(space.cli("export", "own", "--manifest"), 5, "not in the cluster any more", "submitted as an object")
    (gone,) = space.cli("history", "-o", "json").json
    assert (gone["state"], gone["user"] == past["user"] != "") == ("CANCELLED", True)


def test_an_operator_that_was_installed_meanwhile(space: Space, proxy: FaultProxy) -> None:
    proxy.hide("Job")
    refused(submit(space, CONF, job()), 5, "serves no Job of batch/v1")
    refused(space.cli("submit", "job", "--name", "x", "true"), 5, "serves no Job")
    proxy.clear()
    assert submit(space, CONF, job()).exit_code == 0
    assert space.cli("submit", "job", "--name", "x", "true").exit_code == 0


def test_what_a_file_brings_itself_is_not_missed(space: Space) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}}
    thing = job()
    thing["spec"]["template"]["spec"]["serviceAccountName"] = "trainer"
    refused(submit(space, CONF, thing), 3, "there is no ServiceAccount 'trainer'")
    made = submit(space, CONF, account, thing)
    assert made.exit_code == 0, made.stderr


def test_the_same_file_can_be_sent_again(space: Space) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "door"}, "stringData": {"key": "open"}}
    ports = {"ports": [{"port": 80}], "clusterIP": "None"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "own"}, "spec": ports}
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"}, "spec": storage}
    for _ in range(2):
        made = submit(space, CONF, secret, service, claim, job())
        assert made.exit_code == 0, made.stderr
        space.cli("delete", "own", "--force")
    refused(submit(space, {**secret, "stringData": {"key": "other"}}, job()), 4, "another data.key")


def test_a_helper_needs_a_name(space: Space) -> None:
    refused(submit(space, {**CONF, "metadata": {"generateName": "c-"}}, job()), 2, "ConfigMap beside the job needs")


def test_flags_change_it_within_its_kind(space: Space) -> None:
    refused(submit(space, CONF, job(), more=("--set", "kind=Pod")), 2, "kind cannot be patched")
    refused(submit(space, CONF, job(), more=("--set", "metadata=null")), 2, "metadata")


def test_nothing_is_replaced_by_what_cannot_be(space: Space) -> None:
    assert submit(space, CONF, job()).exit_code == 0
    thing = job()
    thing["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}]
    refused(submit(space, CONF, thing, more=("--replace", "--force")), 3, "there is no claim 'gone'")
    assert "job.batch/own" in there(space)


def test_an_exported_job_is_another_run_when_it_is_sent_again(space: Space) -> None:
    env = {"ARENA_UPLOAD_MAX": "0"}
    assert space.cli("submit", "job", "--name", "own", "--", "true", env=env).exit_code == 0
    exported = space.cli.file("exported.yaml", space.cli("export", "own", "--manifest").stdout)
    space.cli("delete", "own", "--force")
    sent = space.cli("submit", "-f", str(exported))
    assert sent.exit_code == 0, sent.stderr
    runs = [run["runId"] for run in space.cli("history", "-o", "json").json]
    assert len(set(runs)) == 2
    assert space.cli("get", "own", "-o", "json").json["runId"] in runs
