"""From the objects that Arena (Go) made to those of today's operators: the one table.

Arena (Go) v0.15.5 writes MPIJob v1alpha1, and TFJob and PyTorchJob of the generation without `spec.runPolicy`.
"""

from __future__ import annotations

from compat.effects import Effect

POLICY = ("cleanPodPolicy", "activeDeadlineSeconds", "ttlSecondsAfterFinished", "backoffLimit")

# Kind, path then, path now; the first that fits is taken.
TABLE: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    # Only the launcher runs the user's words; the other pods run sshd.
    (
        "MPIJob",
        ("spec", "template", "spec", "containers", "[mpi]", "command"),
        ("spec", "mpiReplicaSpecs", "Launcher", "template", "spec", "containers", "[mpi]", "command"),
    ),
    ("MPIJob", ("spec", "template"), ("spec", "mpiReplicaSpecs", "Worker", "template")),
    ("MPIJob", ("spec", "replicas"), ("spec", "mpiReplicaSpecs", "Worker", "replicas")),
    *(
        (kind, ("spec", word), ("spec", "runPolicy", word))
        for kind in ("TFJob", "PyTorchJob", "MPIJob")
        for word in POLICY
    ),
)


def translated(effect: Effect) -> Effect:
    """The effect where today's operators have it."""
    for kind, then, now in TABLE:
        if effect.kind == kind and effect.path[: len(then)] == then:
            return effect._replace(path=(*now, *effect.path[len(then) :]))
    return effect
