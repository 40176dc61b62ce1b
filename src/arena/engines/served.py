"""What clusters serve: the kinds of today's operators, for a dry run that asks nobody, or of a file that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping

from arena.engines.base import Kind, Served
from arena.errors import SpecError

# Training operator 1.9, mpi-operator 0.6, trainer 2.0: versions, and the properties of each spec.
TODAY: Served = {
    "Job.batch": Kind("v1"),
    "PyTorchJob.kubeflow.org": Kind(
        "v1", frozenset({"elasticPolicy", "nprocPerNode", "pytorchReplicaSpecs", "runPolicy"})
    ),
    "TFJob.kubeflow.org": Kind(
        "v1", frozenset({"enableDynamicWorker", "runPolicy", "successPolicy", "tfReplicaSpecs"})
    ),
    "MPIJob.kubeflow.org": Kind(
        "v2beta1",
        frozenset(
            {
                "launcherCreationPolicy",
                "mpiImplementation",
                "mpiReplicaSpecs",
                "runLauncherAsWorker",
                "runPolicy",
                "slotsPerWorker",
                "sshAuthMountPath",
            }
        ),
    ),
    "TrainJob.trainer.kubeflow.org": Kind("v1alpha1"),
}


def read_served(text: str, file: str = "the file") -> Served:
    """The kinds of a file in YAML or JSON; what it does not name is not served.

    >>> read_served('{"TFJob.kubeflow.org": {"version": "v1", "properties": ["tfReplicaSpecs"]}}')
    {'TFJob.kubeflow.org': Kind(version='v1', properties=frozenset({'tfReplicaSpecs'}))}
    """
    found = _plain(text, file)
    if not isinstance(found, Mapping) or not found:
        raise SpecError(f"{file}: KIND.GROUP: {{version: …, properties: […]}} is expected")
    return {str(name): _kind(f"{file}: {name}", value) for name, value in found.items()}


def _plain(text: str, file: str) -> object:
    import yaml

    try:
        return json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise SpecError(f"{file} cannot be read", why=str(error)) from error


def _kind(where: str, value: object) -> Kind:
    given = value if isinstance(value, Mapping) else {"version": value}
    version, properties = given.get("version"), given.get("properties") or []
    if not isinstance(version, str) or not isinstance(properties, list) or {*given} - {"version", "properties"}:
        raise SpecError(f"{where}: {{version: …, properties: […]}} is expected")
    return Kind(version, frozenset(map(str, properties)))
