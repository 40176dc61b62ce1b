"""`arena doctor`: what there is, and what is in the way."""

from __future__ import annotations

import click

from arena.cli import common


@click.command(
    epilog="""\b
Examples:
  arena doctor                    context, rights, kinds, quotas
  arena doctor --role > role.yaml what an administrator has to grant: kubectl apply -f role.yaml
"""
)
@click.option("--role", is_flag=True, help="Print the Role with the rights that arena needs.")
@common.output_option("text", "json")
@click.pass_context
def doctor(ctx: click.Context, role: bool, fmt: str) -> int:
    """Say which cluster, rights, kinds and limits there are; 0 when jobs can be submitted, else 6 or 7."""
    from arena import doctor as doctors
    from arena.cli import output

    client = common.client(ctx)
    if role:
        return _role(ctx, fmt)
    report = doctors.examine(client)
    if fmt == "json":
        output.emit(doctors.as_json(report), "json")
        return report.code
    last = ""
    for label, text in doctors.lines(report):
        click.echo(output.cell(f"{label if label != last else '':<15}{text}".rstrip()))
        last = label
    return report.code


def _role(ctx: click.Context, fmt: str) -> int:
    from arena import doctor as doctors
    from arena.cli import output
    from arena.engines import ENGINES, load

    made = doctors.role(_namespace(ctx), [load(name) for name in ENGINES])
    output.emit_objects([made], "json" if fmt == "json" else "yaml")
    common.say("Bind it: kubectl create rolebinding arena-users --role arena-user --user NAME")
    return 0


def _namespace(ctx: click.Context) -> str:
    """The namespace of this command, also where no cluster can be found."""
    from arena.backends.kubernetes.backend import KubernetesBackend
    from arena.errors import ArenaError

    client = common.client(ctx)
    try:
        backend = client.backend(client.default)
        if isinstance(backend, KubernetesBackend):
            return backend.namespace
    except ArenaError:
        pass
    return client.settings.text("namespace") or "default"


common.placed(doctor)
