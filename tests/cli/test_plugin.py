"""A package adds a job type through the entry point group `arena.jobs`; flags, help, schema and completion know it."""

import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

TYPE = '''"""Lightning: one process group that Lightning's own launcher reads."""

from typing import Annotated, ClassVar

from arena.job import Job, Joined, Seat, flag
from arena.jobs.peers import torch_env


class LightningJob(Job, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """PyTorch Lightning on `workers` nodes."""

    type_name: ClassVar[str] = "lightning"
    trainer: ClassVar[str] = "lightningjob"

    strategy: Annotated[str, flag("how gradients are shared", common=True, metavar="NAME")] = "ddp"

    def join(self, seat: Seat) -> Joined:
        return Joined({**torch_env(self, seat), "NODE_RANK": str(seat.index), "PL_STRATEGY": self.strategy})
'''


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An environment that has all of this one, and the package."""
    venv.create(tmp_path / "venv", symlinks=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "all.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    info = site / "arena_lightning-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "arena_lightning.py").write_text(TYPE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: arena-lightning\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[arena.jobs]\nlightning = arena_lightning:LightningJob\n")
    return site


@pytest.fixture
def lightning(arena: Any, site: Path) -> Any:
    """The command of that environment."""
    arena.words = [str(site.parents[2] / "bin" / "python"), *arena.words[1:]]
    return arena


def test_it_is_small() -> None:
    assert len(TYPE.splitlines()) <= 40


def test_it_runs_and_everything_knows_it(lightning: Any) -> None:
    words = ["submit", "lightning", "-b", "local", "--name", "a", "-w", "2", "--strategy", "fsdp"]
    assert lightning(*words, "--wait", "--", "sh", "-c", "echo $NODE_RANK/$WORLD_SIZE $PL_STRATEGY").exit_code == 0
    assert sorted(lightning("logs", "a", "--raw").stdout.splitlines()) == ["0/2 fsdp", "1/2 fsdp"]
    assert lightning.job("a")["trainer"] == "lightningjob"
    assert "strategy: fsdp" in lightning("export", "a").stdout
    assert "--strategy NAME" in lightning("submit", "lightning", "--help").stdout
    assert "lightning" in lightning("submit", "--help").stdout
    assert lightning("schema", "lightning").json["properties"]["strategy"]["description"] == "how gradients are shared"
    asked = {"COMP_WORDS": "arena submit lightning --st", "COMP_CWORD": "3", "_ARENA_COMPLETE": "bash_complete"}
    assert "plain,--strategy" in lightning(env=asked).stdout.splitlines()
    near = lightning("submit", "lightening", "true")
    assert (near.exit_code, "'lightning'" in near.stderr) == (2, True)


def test_its_jobs_are_still_shown_without_it(lightning: Any) -> None:
    lightning("submit", "lightning", "-b", "local", "--name", "a", "--wait", "true")
    del lightning.words
    assert lightning.job("a")["trainer"] == "lightningjob"
    assert lightning("list").exit_code == 0
    assert lightning("logs", "a").exit_code == 0
    refused = lightning("rerun", "a")
    assert (refused.exit_code, "not installed" in refused.stderr) == (5, True)


@pytest.mark.parametrize(
    "text", ["import no_such_module\n", "raise RuntimeError('boom')\n", "", "LightningJob = dict\n", "x = (\n"]
)
def test_one_that_cannot_be_loaded_is_one_line(lightning: Any, site: Path, text: str) -> None:
    lightning("submit", "lightning", "-b", "local", "--name", "a", "--wait", "true")
    (site / "arena_lightning.py").write_text(text)
    broken = lightning("submit", "lightning", "-b", "local", "true")
    assert (broken.exit_code, broken.stderr.splitlines()[0]) == (5, "Error: the job type 'lightning' cannot be loaded")
    assert lightning("submit", "--help").exit_code == 0
    assert lightning("list", "-o", "name").stdout == "a\n"
    assert "lightning" not in lightning("schema").json["$defs"]
