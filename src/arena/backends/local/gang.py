"""When a gang is over, and whether it starts again. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from arena.job import Ends, RestartPolicy
from arena.status import Replica

ENDLESS = 6  # restarts of OnFailure and Always where `retry` does not say, as a Kubernetes Job has them
RETRYABLE = 128  # exit codes from here on may go better next time (ExitCode)


def over(replicas: list[Replica], ends: Mapping[str, Ends]) -> str | None:
    """How the gang ended, by its policy: Succeeded, Failed, Lost; None while it goes on.

    The first failure ends it. Success needs all replicas of roles that end with `all`, and replica 0 of `first`.
    """
    if any(r.lost for r in replicas):
        return "Lost"
    if any(r.failed for r in replicas):
        return "Failed"
    deciding = [r for r in replicas if ends[r.role] == "all" or (ends[r.role] == "first" and r.index == 0)]
    deciding = deciding or replicas
    if all(r.ended and r.exit_code == 0 for r in deciding):
        return "Succeeded"
    if all(r.ended for r in replicas):
        return "Failed"
    return None


def again(policy: RestartPolicy, retry: int, attempt: int, word: str, code: int | None) -> bool:
    """Whether the gang starts again after this attempt ended so."""
    if word not in ("Failed", "Succeeded"):
        return False
    if policy == "Never":
        policy = "OnFailure" if retry else "Never"
    allowed = attempt <= (retry or (ENDLESS if policy != "Never" else 0))
    wanted = {
        "Never": False,
        "OnFailure": word == "Failed",
        "Always": True,
        "ExitCode": word == "Failed" and (code or 0) >= RETRYABLE,
    }
    return allowed and wanted[policy]
