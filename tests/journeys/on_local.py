"""Set-ups of days that are played on this machine alone."""

from pathlib import Path

from journeys.stage import Stage, age, bare_container

HOUR = 3600


def as_it_is(place: Stage) -> None:
    """The shared set-up and nothing more."""


def on_local(place: Stage) -> None:
    """A machine whose default backend is set to `local`."""
    place.me.env["ARENA_BACKEND"] = "local"


def ci_container(place: Stage) -> None:
    """A container of a pipeline; `$E` is its whole environment."""
    bare_container(place)
    env = place.me.env
    env["E"] = f"env -i PATH={env['PATH']} TMPDIR={env['TMPDIR']} CI=true ARENA_BACKEND=local"


def unreadable_run(place: Stage) -> None:
    """One run among the others that its own user may not read."""
    state = Path(place.me.env["TMPDIR"], f"arena-{place.me.uid}")
    odd = state / "runs" / "odd-0000"
    odd.mkdir(parents=True)
    odd.chmod(0o000)


def last_week(place: Stage) -> None:
    """The runs of last week, made on this machine."""
    on_local(place)
    three_runs(place)


def three_runs(place: Stage) -> None:
    """Three deleted runs of `mnist`, the newest with a secret and code that is nowhere else, and an artefact."""
    place.must("! arena run --name mnist -- sh -c 'exit 1'; arena delete mnist; sleep 1")
    place.must("arena run --name mnist train.py --epochs 1 && arena delete mnist; sleep 1")
    train = place.project / "train.py"
    train.write_text("import helper\n" + train.read_text())
    helper = place.project / "helper.py"
    helper.write_text('print("helper v1")\n')
    place.must("arena run --name mnist --env WANDB_API_KEY=secret1 --workers 2 train.py --epochs 1")
    place.must("arena delete mnist")
    helper.write_text('print("helper v2")\n')
    place.must("arena submit -f job.yaml --name artefact && arena wait artefact --record out/")


def full_list(place: Stage) -> None:
    """Jobs of two people in all states, some of them old."""
    on_local(place)
    state = place.project.parent / ".local" / "state" / "arena"
    place.must("arena run --detach --name p --selector zone=none train.py")
    place.must("arena run --detach --name r -- sleep 3000")
    place.must("! arena run --name f -- sh -c 'exit 3'")
    place.must("arena run --name s -- true")
    place.must("! ARENA_USER=bob arena run --name bf -- sh -c 'exit 3'")
    place.must("ARENA_USER=bob arena run --detach --name br -- sleep 3000")
    for name, seconds in (("f", 3 * HOUR), ("s", HOUR / 6), ("bf", 3 * HOUR)):
        age(state, name, seconds)
