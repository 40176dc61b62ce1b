"""What engines make of jobs: as it was reviewed, and as real API servers and webhooks take it."""

import contextlib
import json
from collections.abc import Iterator

import pytest
import yaml
from testbed.api import Api, ApiError, wait_for
from testbed.bed import Bed
from testbed.operators import OPERATORS

from arena.engines import load
from engines.golden import CASES, FOLDER, rendered
from engines.record import BESIDE, path

# Shapes that the installed version of an operator does not serve.
OTHER_VERSIONS = ("tfjob-first-generation",)
SERVED = [name for name in CASES if name not in OTHER_VERSIONS]


@pytest.mark.parametrize("name", CASES)
def test_a_rendering_is_the_one_that_was_reviewed(name: str) -> None:
    assert rendered(name) == (FOLDER / f"{name}.yaml").read_text(), "PYTHONPATH=tests:. python -m engines.golden"


def test_every_golden_file_has_its_case() -> None:
    assert {file.stem for file in FOLDER.glob("*.yaml")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_rendering_is_read_back_with_the_names_of_its_type(name: str) -> None:
    engine_name, planned = CASES[name]
    engine = load(engine_name)
    import msgspec

    thing = msgspec.json.decode(json.dumps(engine.render(planned)), type=engine.thing)
    seen = engine.read(thing, ())

    names = [f"{role.name}-{index}" for role in planned.roles for index in range(role.count)]
    gpus = {f"{role.name}-{index}": role.gpus for role in planned.roles for index in range(role.count)}
    assert [replica.name for replica in seen.replicas][: len(names)] == names
    if engine_name != "mpijob":  # the Launcher's GPUs are its hosts'
        assert {replica.name: replica.gpus for replica in seen.replicas} == gpus


@pytest.fixture(scope="module")
def kinds() -> Iterator[Bed]:
    """A control plane that serves every kind, and runs nothing."""
    with Bed.start(kubelet=False, operators=tuple(OPERATORS)) as started:
        yield started


@pytest.mark.cluster
@pytest.mark.parametrize("name", SERVED)
def test_a_real_server_knows_every_field(kinds: Bed, name: str) -> None:
    _dry(kinds.api("alice"), name)


@pytest.mark.kubelet
@pytest.mark.parametrize("name", [name for name in SERVED if not name.startswith("job-")])
def test_the_operators_webhooks_take_it(node: Bed, name: str) -> None:
    api = node.api("alice")
    with runtimes(api, name):
        wait_for("a webhook that takes it", lambda: _dry(api, name, "TrainingRuntime"), 10)


@contextlib.contextmanager
def runtimes(api: Api, name: str) -> Iterator[None]:
    """The runtimes of a case, which its webhook looks for."""
    found = [one for one in yaml.safe_load_all(rendered(name)) if one["kind"] == "TrainingRuntime"]
    for one in found:
        api.post(BESIDE[one["kind"]], one)
    yield
    for one in found:
        api.delete(f"{BESIDE[one['kind']]}/{one['metadata']['name']}")


@pytest.mark.cluster
def test_a_field_that_nobody_knows_is_refused(kinds: Bed) -> None:
    """The two above can fail."""
    document = yaml.safe_load(rendered("pytorchjob"))
    document["spec"]["runPolicy"]["cleanPods"] = "None"
    with pytest.raises(ApiError, match="cleanPods"):
        kinds.api("alice").post(f"{path('pytorchjob')}?dryRun=All&fieldValidation=Strict", document)


def _dry(api: Api, name: str, but: str = "") -> bool:
    """Everything of a case but one kind, checked strictly by the server and thrown away."""
    for document in yaml.safe_load_all(rendered(name)):
        place = BESIDE.get(document["kind"]) or path(CASES[name][0])
        if document["kind"] != but:
            api.post(f"{place}?dryRun=All&fieldValidation=Strict", document)
    return True
