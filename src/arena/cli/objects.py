"""`arena submit -f FILE` where the file holds an operator's own object: it is sent as it stands."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from arena.cli import common, run

if TYPE_CHECKING:
    from arena.backends.kubernetes.backend import KubernetesBackend
    from arena.backends.kubernetes.sending import Objects
    from arena.client import Client


def is_object(text: str) -> bool:
    """Whether a file holds Kubernetes objects, not a run file.

    >>> is_object("apiVersion: batch/v1\\nkind: Job"), is_object("type: job")
    (True, False)
    >>> is_object("type: job\\ncommand: |\\n  apiVersion: v1\\n  kind: Job")
    False
    """
    begin = r"[{,]\s*" if text.lstrip().startswith("{") else "^"
    return all(re.search(rf"""(?m){begin}["']?{key}["']?\s*:""", text) for key in ("apiVersion", "kind"))


def cluster_of(client: Client, what: str) -> KubernetesBackend:
    """The cluster of a command; UnsupportedError where it goes to this machine."""
    from arena import choice
    from arena.backends.kubernetes.backend import KubernetesBackend
    from arena.errors import UnsupportedError

    backend = client.backend(choice.backend(client.settings, client.env, "type")[0])
    if not isinstance(backend, KubernetesBackend):
        raise UnsupportedError(f"{what} needs a cluster", hint="-b kubernetes")
    return backend


@click.pass_context
def _submit(ctx: click.Context, /, **given: Any) -> int:
    client = common.client(ctx)
    objects = _objects(given)
    if not given["dry_run"]:
        run.can_act(given, attached=given["wait"], followed=False)
    elif given["dry_run"] == "client":
        return run.show(objects.all, (), given)
    plan = client.plan_object(objects, typed=("arena", *sys.argv[1:]), dry=given["dry_run"])
    return run.carry_out(client, plan, given, attached=given["wait"], followed=False)


def _objects(given: Mapping[str, Any]) -> Objects:
    """What the file holds, after --patch and --set."""
    from msgspec.structs import replace

    from arena import runfile
    from arena.backends.base import Context
    from arena.backends.kubernetes.planning import patched
    from arena.backends.kubernetes.sending import objects_of
    from arena.engines import documents

    file = given["file"]
    label = runfile.label(file)
    found = objects_of(documents.read_documents(runfile.read_text(file), label), label)
    changes = run.changes(given)
    return replace(found, thing=patched(found.thing, Context(**changes))) if changes else found


submit = click.Command(
    "object",
    callback=_submit,
    params=[
        *(option for option in run.making() if option.name not in ("served", "dry_run")),
        click.Option(["--dry-run"], is_flag=False, flag_value="client", metavar="client|server",
                     type=click.Choice([*run.DRY_RUN]), callback=run.dry_run_word,
                     help="Print what would be made, do nothing."),
        click.Option(["--wait"], is_flag=True, help="Wait for its end; its exit code."),
    ],
    help="Submit an operator's own object as it stands in a file.",
)  # fmt: skip
common.placed(submit)
