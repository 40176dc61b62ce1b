"""A job is a value: what the user said, whoever carries it out.

Every field is declared once, with `flag()`; option, YAML key, Python argument, JSON Schema, completion and reference
page derive from that declaration. Nothing here does I/O.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Struct, field

from arena import cluster, quantity
from arena.errors import SpecError
from arena.secrets import MASK, looks_secret

Local = Literal["used", "noted", "refused"]
Ends = Literal["all", "first", "never"]
RestartPolicy = Literal["Never", "OnFailure", "Always", "ExitCode"]
PullPolicy = Literal["", "Always", "IfNotPresent", "Never"]
CleanPolicy = Literal["", "Running", "All", "None"]
SyncMode = Literal["", "git", "rsync"]
AffinityPolicy = Literal["none", "spread", "binpack"]
AffinityConstraint = Literal["preferred", "required"]
Logs = Literal["none", "volume", "mount"]
Env = dict[str, str]


def flag(
    help: str,
    *,
    short: str = "",
    metavar: str = "",
    group: str = "Job",
    local: Local = "used",
    aliases: tuple[str, ...] = (),
    common: bool = False,
    parts: tuple[str, ...] = (),
    part_aliases: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ge: int | None = None,
    le: int | None = None,
) -> msgspec.Meta:
    """The declaration of one field: its help, its spellings, and what it means on the local backend.

    `common` fields stand in the short `--help`. `ge` and `le` bound numbers. `local` is one of
    used, noted (one line says it has no effect here) and refused. Of a role, `parts` are those that can be set, by
    default all, and `part_aliases` their old spellings.
    """
    extra = {
        "short": short,
        "metavar": metavar,
        "group": group,
        "local": local,
        "aliases": aliases,
        "common": common,
        "parts": parts,
        "part_aliases": part_aliases,
    }
    return msgspec.Meta(description=help, extra=extra, ge=ge, le=le)


class Role(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The replicas of one role: what a user sets for it (`ps=Role(count=1, cpu="2")`), completed by `Job.roles()`.

    What has no `flag()` is decided by the job's type: words and environment, whether data is mounted, what becomes
    of the folder of TensorBoard's logs.
    """

    count: Annotated[int, flag("replicas of this role", ge=0, le=10_000)] = 0
    cpu: Annotated[str, flag("CPUs per replica, as 2 or 500m", local="noted")] = ""
    cpu_limit: Annotated[str, flag("most CPUs per replica, where it is not --cpu's number", local="noted")] = ""
    memory: Annotated[str, flag("memory limit per replica, as 4Gi")] = ""
    memory_limit: Annotated[str, flag("most memory per replica, where --memory only asks for it", local="noted")] = ""
    gpus: Annotated[int, flag("GPUs per replica", ge=0, le=1024)] = 0
    image: Annotated[str, flag("container image of this role", local="noted")] = ""
    port: Annotated[int, flag("port of this role", local="noted", ge=0, le=65535)] = 0
    selector: Annotated[
        Env, flag("only nodes with this label, instead of --selector", metavar="KEY=VALUE", local="noted")
    ] = field(default_factory=dict)
    affinity_policy: Annotated[AffinityPolicy, flag("spread over nodes, or binpack", local="noted")] = "none"
    affinity_constraint: Annotated[AffinityConstraint, flag("how strong that is", local="noted")] = "preferred"
    name: str = ""
    argv: tuple[str, ...] = ()
    env: Env = field(default_factory=dict)
    ends: Ends = "all"
    ranked: bool = True
    nproc: int = 1
    device: tuple[str, ...] = ()
    rdma: bool = False
    data: bool = True
    logs: Logs = "mount"


class Seat(Struct, frozen=True, kw_only=True):
    """The place of one process in its gang: who it is, and where the others are."""

    role: str
    index: int
    rank: int
    world: int
    local_rank: int = 0
    nproc: int = 1
    master: str = "127.0.0.1:29500"
    peers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    folder: str = ""

    @property
    def master_host(self) -> str:
        return self.master.rpartition(":")[0]

    @property
    def master_port(self) -> str:
        return self.master.rpartition(":")[2]


class Joined(Struct, frozen=True):
    """How one process finds its peers: environment, and files to lay into `Seat.folder`."""

    env: Env = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


class Job(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all job types have. `command` holds the words as typed: a program and its arguments.

    One word with blanks in it is a shell line; `x.py` and `-m pkg` run with Python.
    """

    type_name: ClassVar[str] = "job"
    trainer: ClassVar[str] = "job"
    ports: ClassVar[Literal["master", "each", "none"]] = "master"
    one_line: ClassVar[bool] = False  # `submit` joins the words before `--` to one shell line, as Arena (Go) does

    name: Annotated[str, flag("name of the job", common=True, metavar="NAME")] = ""
    command: Annotated[tuple[str, ...], flag("program and its arguments", group="Program")] = ()
    workers: Annotated[int, flag("number of workers", short="w", common=True, ge=1, le=10_000)] = 1
    nproc_per_node: Annotated[
        int, flag("processes per worker: a .py file is started so many times", common=True, ge=1, le=1024)
    ] = 1
    gpus: Annotated[int, flag("GPUs per worker", short="g", common=True, group="Resources", ge=0, le=1024)] = 0
    cpu: Annotated[str, flag("CPUs per worker, as 2 or 500m", group="Resources", local="noted")] = ""
    memory: Annotated[str, flag("memory limit per worker, as 4Gi", common=True, group="Resources")] = ""
    env: Annotated[
        Env,
        flag("environment variable; KEY alone takes the value from here", common=True, short="e", metavar="KEY=VALUE"),
    ] = field(default_factory=dict)
    working_dir: Annotated[
        str, flag("folder the program starts in", metavar="DIR", aliases=("workingDir",), group="Program")
    ] = ""
    image: Annotated[str, flag("container image", common=True, group="Cluster", local="noted")] = ""
    label: Annotated[
        Env, flag("label of the job", short="l", metavar="KEY=VALUE", aliases=("labels",), group="Job")
    ] = field(default_factory=dict)
    annotation: Annotated[
        Env,
        flag(
            "annotation of the job",
            short="a",
            metavar="KEY=VALUE",
            aliases=("annotations",),
            group="Job",
            local="noted",
        ),
    ] = field(default_factory=dict)
    selector: Annotated[
        Env,
        flag(
            "only nodes with this label",
            metavar="KEY=VALUE",
            aliases=("node-selector",),
            group="Placement",
        ),
    ] = field(default_factory=dict)
    toleration: Annotated[
        tuple[str, ...],
        flag("taint to tolerate, or all", metavar="KEY=VALUE:EFFECT,OPERATOR", group="Placement", local="noted"),
    ] = ()
    priority: Annotated[str, flag("priority class", short="p", group="Placement", metavar="CLASS", local="noted")] = ""
    scheduler: Annotated[str, flag("scheduler of the pods", group="Placement", metavar="NAME", local="noted")] = ""
    gang: Annotated[bool, flag("start all replicas together or none (coscheduling)", group="Placement")] = False
    queue: Annotated[bool, flag("start suspended, for kube-queue", group="Placement", local="noted")] = False
    queue_name: Annotated[str, flag("queue of Kueue", group="Placement", metavar="QUEUE", local="noted")] = ""
    data: Annotated[
        tuple[str, ...],
        flag("volume claim and where to mount it", short="d", metavar="CLAIM:/PATH", group="Data", local="refused"),
    ] = ()
    data_dir: Annotated[
        tuple[str, ...],
        flag("folder of the nodes and where to mount it", metavar="/FOLDER[:/PATH]", aliases=("dataDir",),
             group="Data", local="refused"),
    ] = ()  # fmt: skip
    output: Annotated[
        str,
        flag("keep what is written to $ARENA_OUTPUT_DIR in a volume claim", metavar="CLAIM:/PATH", group="Data",
             local="refused"),
    ] = ""  # fmt: skip
    config_file: Annotated[
        tuple[str, ...],
        flag("file of this machine and where the containers have it", metavar="FILE:/PATH", group="Data",
             local="refused"),
    ] = ()  # fmt: skip
    sync_mode: Annotated[
        SyncMode,
        flag("fetch the code first, into code/ of the working folder", group="Code", aliases=("syncMode",),
             local="refused"),
    ] = ""  # fmt: skip
    sync_source: Annotated[
        str, flag("where the code is: a URL", group="Code", metavar="URL", aliases=("syncSource",), local="refused")
    ] = ""
    sync_image: Annotated[
        str,
        flag(
            "image that fetches it: of git-sync or rsync; else the job's own image does",
            group="Code",
            metavar="IMAGE",
            aliases=("syncImage",),
            local="noted",
        ),
    ] = ""
    image_pull_policy: Annotated[PullPolicy, flag("when the image is pulled", group="Cluster", local="noted")] = ""
    image_pull_secret: Annotated[
        tuple[str, ...],
        flag("secret of the image's registry", group="Cluster", metavar="SECRET", aliases=("image-pull-secrets",),
             local="noted"),
    ] = ()  # fmt: skip
    plain_env: Annotated[
        tuple[str, ...],
        flag("variable of --env that looks secret and may stand in the job object, in clear", group="Cluster",
             metavar="KEY", local="noted"),
    ] = ()  # fmt: skip
    shell: Annotated[str, flag("shell of a shell line", group="Program", metavar="SHELL")] = ""
    device: Annotated[
        tuple[str, ...],
        flag("devices per worker that are no NVIDIA GPUs", metavar="NAME=COUNT", group="Resources", local="refused"),
    ] = ()
    rdma: Annotated[bool, flag("an RDMA device per worker", group="Resources", local="noted")] = False
    share_memory: Annotated[
        str, flag("size of /dev/shm, as 2Gi; 0: as the node has it", group="Resources", metavar="SIZE", local="noted")
    ] = ""
    host_network: Annotated[bool, flag("the node's network", group="Cluster", aliases=("hostNetwork",))] = False
    host_ipc: Annotated[
        bool, flag("the node's shared memory and semaphores", group="Cluster", aliases=("hostIPC",))
    ] = False
    host_pid: Annotated[bool, flag("the node's processes", group="Cluster", aliases=("hostPID",))] = False
    tensorboard: Annotated[bool, flag("a TensorBoard beside the job", group="TensorBoard", local="noted")] = False
    tensorboard_image: Annotated[
        str,
        flag("image of TensorBoard", group="TensorBoard", metavar="IMAGE", aliases=("tensorboardImage",),
             local="noted"),
    ] = ""  # fmt: skip
    logdir: Annotated[
        str, flag("folder of its event files", group="TensorBoard", metavar="/PATH", local="noted")
    ] = ""  # fmt: skip
    model_name: Annotated[str, flag("name of the model that comes out", group="Model", metavar="NAME",
                                    local="noted")] = ""  # fmt: skip
    model_source: Annotated[str, flag("where the model will lie", group="Model", metavar="URI", local="noted")] = ""
    clean_task_policy: Annotated[
        CleanPolicy,
        flag("which pods go when the job has ended", group="Life", aliases=("cleanTaskPolicy",), local="noted"),
    ] = ""
    keep_failed: Annotated[
        bool, flag("keep all pods when one has failed, to look at them", group="Life", local="noted")
    ] = False  # fmt: skip
    restart_policy: Annotated[
        RestartPolicy, flag("when the gang is started again", group="Life", metavar="POLICY")
    ] = "Never"  # fmt: skip
    retry: Annotated[
        int, flag("how often the gang is started again after a failure", group="Life", aliases=("retries",), ge=0,
                  le=1000)
    ] = 0  # fmt: skip
    running_timeout: Annotated[
        str, flag("end the job when it has been RUNNING so long, as 2h", group="Life", metavar="DURATION")
    ] = ""
    ttl_after_finished: Annotated[
        str, flag("delete the job so long after its end", group="Life", metavar="DURATION",
                  aliases=("ttl-seconds-after-finished",))
    ] = ""  # fmt: skip
    snapshot: Annotated[bool, flag("freeze the code first and run from the copy", group="Program")] = False

    def argv(self, python: str = "python") -> tuple[str, ...]:
        """The words to start: `command` with the interpreter it needs in front."""
        return launch(self.command, python, self.shell)

    def roles(self, python: str = "python") -> list[Role]:
        """The replicas this job has, by role."""
        return [
            Role(
                name="worker",
                count=self.workers,
                argv=self.argv(python),
                env=self.env,
                cpu=self.cpu,
                memory=self.memory,
                gpus=self.gpus,
                nproc=self.processes,
                device=self.device,
                rdma=self.rdma,
            )
        ]

    def hosts(self) -> Role | None:
        """What a cluster adds: hosts, which have the GPUs, on which the processes of `roles` start others."""
        return None

    def named_image(self) -> tuple[str, str] | None:
        """The image of replicas whose role has none of its own, with the flag that names it."""
        return (self.image, "--image") if self.image else None

    def join(self, seat: Seat) -> Joined:
        """What tells the process in this seat who and where its peers are."""
        return Joined()

    @property
    def processes(self) -> int:
        """How many processes arena starts per replica; torchrun starts its own."""
        return self.nproc_per_node if is_python_file(self.command) else 1

    def problems(self) -> Iterable[str]:
        """What is wrong beyond the types of single fields, one line each, beginning with the field's name."""
        yield from _common_problems(self)


J = TypeVar("J", bound=Job)

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
ENV_NAME = re.compile(r"[^=\0]+")
MAX_NAME = 63
ROOMY = 49  # letters of a name that leave room for the children of every kind
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
RESERVED = ("ARENA_RUN_ID", "ARENA_REPLICA")


def check(job: J) -> J:
    """The same job, or SpecError with everything that is wrong: the one validation of flags, YAML and Python.

    >>> from arena.jobs.plain import PlainJob
    >>> check(PlainJob(name="a", command=("true",), workers=2)).workers
    2
    """
    raise_all(find_problems(job))
    return job


def find_problems(job: Job) -> list[str]:
    """Everything that is wrong with a job, one line each: `--workers: …`, `--env HF_TOKEN: …`, `command: …`."""
    problems = list(_type_problems(job))
    # Where a type is wrong, the rules beyond it are told as far as they can be.
    with contextlib.suppress(TypeError, AttributeError) if problems else contextlib.nullcontext():
        problems.extend(job.problems())
    return problems


def raise_all(problems: list[str]) -> None:
    """SpecError naming every problem, if there is one."""
    if len(problems) == 1:
        raise SpecError(problems[0])
    if problems:
        raise SpecError(f"{len(problems)} things are wrong with the job", why="\n       ".join(problems))


def option_name(field_name: str) -> str:
    """The flag of a field: `working_dir` -> `--working-dir`."""
    return "--" + field_name.replace("_", "-")


def metas(struct: type[Struct]) -> dict[str, msgspec.Meta]:
    """The `flag()` of each declared field, by field name."""
    hints = _hints(struct)
    found = {}
    for name in struct.__struct_fields__:
        for meta in getattr(hints[name], "__metadata__", ()):
            if isinstance(meta, msgspec.Meta) and meta.extra and "group" in meta.extra:
                found[name] = meta
    return found


def types(struct: type[Struct]) -> dict[str, Any]:
    """The bare type of each field, by field name."""
    return {name: _bare(hint) for name, hint in _hints(struct).items() if name in struct.__struct_fields__}


def is_python_file(command: tuple[str, ...]) -> bool:
    """Whether the program is a Python file or module, which arena starts with an interpreter."""
    return bool(command) and (command[0] == "-m" or (command[0].endswith(".py") and not _is_shell_line(command)))


def launch(command: tuple[str, ...], python: str = "python", shell: str = "") -> tuple[str, ...]:
    """What to start for the words typed. With a `shell`, one word is a line for it.

    >>> launch(("train.py", "--lr", "0.1"))
    ('python', 'train.py', '--lr', '0.1')
    >>> launch(("echo a | tr a b",))
    ('sh', '-c', 'echo a | tr a b')
    """
    if not command:
        return ()
    if is_python_file(command):
        return (python, *command)
    if _is_shell_line(command) or (shell and len(command) == 1):
        return (shell or "sh", "-ec" if "\n" in command[0] else "-c", command[0])
    if command[0].endswith(".sh"):
        return (shell or "sh", *command)
    return command


def _is_shell_line(command: tuple[str, ...]) -> bool:
    return len(command) == 1 and any(c.isspace() or c in "|&;<>()$`*?{}'\"#" for c in command[0])


@functools.cache
def _hints(struct: type[Struct]) -> dict[str, Any]:
    return get_type_hints(struct, include_extras=True)


def _bare(hint: Any) -> Any:
    return hint.__origin__ if hasattr(hint, "__metadata__") else hint


def _type_problems(job: Job) -> Iterable[str]:
    for name, hint in _hints(type(job)).items():
        if name in job.__struct_fields__:
            yield from field_problems(option_name(name), getattr(job, name), hint)


def field_problems(label: str, value: object, hint: Any) -> Iterable[str]:
    """What is wrong with one value for one declared type, named by its flag or key.

    What holds many values, among them secrets, is not shown: of a mapping the key is named, of a list the wrong word.
    """
    of = get_args(_bare(hint))
    if isinstance(value, dict) and of:
        yield from (f"{label}: {wrong} (got {key!r})" for key in value if (wrong := _type_problem(key, of[0])))
        yield from (f"{label} {key}: {wrong}" for key, item in value.items() if (wrong := _type_problem(item, of[1])))
    elif isinstance(value, tuple) and of[1:] == (...,):
        yield from (f"{label}: {wrong} (got {item!r})" for item in value if (wrong := _type_problem(item, of[0])))
    elif wrong := _type_problem(value, hint):
        yield f"{label}: {wrong}" + (f" (got {value!r})" if isinstance(value, str | int | float) else "")


def _type_problem(value: object, hint: Any) -> str:
    try:
        msgspec.convert(msgspec.to_builtins(value, builtin_types=(bytes,)), hint)
    except msgspec.ValidationError as error:
        return _plain(str(error))
    except TypeError:
        return f"{type(value).__name__} is not possible here"
    return ""


def _plain(message: str) -> str:
    """msgspec's words without its backquotes and path."""
    return message.split(" - at ", maxsplit=1)[0].replace("`", "").replace("Expected ", "expected ")


def name_problems(name: str) -> Iterable[str]:
    """Why a name cannot be a job's, on either backend: it becomes a DNS label of pods and services."""
    if not name:
        return
    if len(name) > MAX_NAME:
        shorter = shorten(name, ROOMY)
        yield f"--name: {name!r} has {len(name)} characters, at most {MAX_NAME} are possible: {shorter!r} fits"
    elif not NAME.fullmatch(name):
        yield (
            f"--name: {name!r} is not possible: lower-case letters, digits and '-', beginning with a letter"
            f" and not ending with '-': {valid_name(name)!r} would do"
        )


def shorten(name: str, limit: int = MAX_NAME) -> str:
    """The name cut to the limit, never ending in '-'."""
    return valid_name(name)[:limit].rstrip("-")


def valid_name(text: str) -> str:
    """The nearest name that is allowed: `3D_Unet.py` -> `job-3d-unet-py`.

    >>> valid_name("3d-unet")
    'job-3d-unet'
    """
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = name if name[:1].isalpha() else f"job-{name}".rstrip("-")
    return name[:MAX_NAME].rstrip("-")


def made_up_name(command: tuple[str, ...], chance: bytes) -> str:
    """`<script>-<4 letters>`.

    >>> made_up_name(("3D_Unet.py",), bytes(4))
    'job-3d-unet-aaaa'
    """
    words = [word for word in command if word not in ("-m", "--")]
    first = words[0].split()[0] if words and words[0].split() else "job"
    return f"{shorten(valid_name(PurePath(first).stem), 40)}-{run_letters(chance)}"


def run_letters(chance: bytes) -> str:
    """As many letters by chance as bytes are given; 31 different ones, so that a byte's remainder is nearly fair."""
    return "".join(LETTERS[byte % len(LETTERS)] for byte in chance)


def word_problems(label: str, word: str, shown: str = "") -> Iterable[str]:
    """Why a word cannot travel: NUL and bytes that are not UTF-8."""
    shown = shown or repr(word)
    if "\0" in word:
        yield f"{label}: {shown} holds a NUL byte"
    if any("\ud800" <= c <= "\udfff" for c in word):
        yield f"{label}: {shown} is not UTF-8"


def _common_problems(job: Job) -> Iterable[str]:
    yield from name_problems(job.name)
    if not job.command or not job.command[0].strip():
        yield "command: what should run? Give a program, as in: arena run train.py"
    elif job.command in (("-m",), ("-m", "")):
        yield "command: -m: which module should run? As in: arena run -m my_package.train"
    yield from _all_word_problems(job)
    for key in job.env:
        if not ENV_NAME.fullmatch(key):
            yield f"--env: {key!r} is no name of a variable"
        elif key in RESERVED:
            yield f"--env: {key} is arena's own mark of a process"
    for key in job.plain_env:
        if key not in job.env:
            yield f"--plain-env: {key!r} is not among the variables of --env"
    yield from _quantity_problems(job)
    yield from _cluster_problems(job)
    if job.nproc_per_node > 1 and not _starts_processes(job.command):
        yield (
            "--nproc-per-node: only a .py file is started several times per worker;"
            f" a command such as {' '.join(job.command[:1])!r} must be torchrun"
        )


def _all_word_problems(job: Job) -> Iterable[str]:
    """Every text of every field travels: into a process, a file, a manifest."""
    for name in job.__struct_fields__:
        label = "command" if name == "command" else option_name(name)
        for part, word in _words(getattr(job, name)):
            hidden = looks_secret(part.strip(), word) and part.startswith(" ")
            yield from word_problems(label + part, word, MASK if hidden else "")


def _words(value: object) -> Iterable[tuple[str, str]]:
    """The texts in a value, each with what its flag needs beside the field's: `-image` of a role, ` KEY` of a pair."""
    if isinstance(value, str):
        yield "", value
    elif isinstance(value, Role):
        for name in metas(Role):
            yield from ((option_name(name)[1:], word) for _, word in _words(getattr(value, name)))
    elif isinstance(value, Mapping):
        yield from (("", key) for key in value)
        yield from ((f" {key}", word) for key, word in value.items() if isinstance(word, str))
    elif isinstance(value, list | tuple):
        yield from (("", word) for word in value if isinstance(word, str))


def _quantity_problems(job: Job) -> Iterable[str]:
    parsers: list[tuple[str, Callable[[str], object]]] = [
        ("memory", quantity.parse_bytes),
        ("memory_limit", quantity.parse_bytes),
        ("share_memory", quantity.parse_bytes),
        ("cpu", quantity.parse_cpu),
        ("cpu_limit", quantity.parse_cpu),
        ("running_timeout", quantity.parse_duration),
        ("ttl_after_finished", quantity.parse_duration),
    ]
    roles = {name: role for name in job.__struct_fields__ if isinstance(role := getattr(job, name), Role)}
    for name, parse in parsers:
        if text := getattr(job, name, ""):
            yield from quantity_problem(option_name(name), text, parse)
        for role_name, role in roles.items():
            if text := getattr(role, name, ""):
                yield from quantity_problem(option_name(f"{role_name}_{name}"), text, parse)


def _cluster_problems(job: Job) -> Iterable[str]:
    """What is wrong with the words that name things of a cluster, and with those that need each other."""
    mounts: list[tuple[str, cluster.Mount]] = []
    for name, parse in (
        ("data", cluster.parse_data),
        ("data_dir", cluster.parse_data_dir),
        ("config_file", cluster.parse_config_file),
    ):
        words = getattr(job, name)
        yield from cluster.list_problems(option_name(name), words, parse)
        mounts += ((option_name(name), mount) for mount in cluster.parsed(words, parse))
    yield from cluster.mount_problems(mounts)
    yield from cluster.list_problems("--output", filter(None, [job.output]), cluster.parse_output)
    yield from cluster.list_problems("--logdir", filter(None, [job.logdir]), cluster.parse_folder)
    yield from cluster.list_problems("--toleration", job.toleration, cluster.parse_toleration)
    yield from cluster.list_problems("--device", job.device, cluster.parse_device)
    yield from cluster.device_problems(job.device)
    for name in ("image", "sync_image", "tensorboard_image"):
        yield from cluster.list_problems(option_name(name), filter(None, [getattr(job, name)]), cluster.parse_image)
    yield from cluster.list_problems("--image-pull-secret", job.image_pull_secret, cluster.parse_name)
    for name in ("priority", "scheduler", "queue_name"):
        yield from cluster.list_problems(option_name(name), filter(None, [getattr(job, name)]), cluster.parse_name)
    yield from _pair_problems(job)


def _pair_problems(job: Job) -> Iterable[str]:
    """Flags that mean nothing without another."""
    if job.sync_mode and not job.sync_source:
        yield "--sync-mode: --sync-source must say where the code is"
    if not job.sync_mode:
        for name in ("sync_source", "sync_image"):
            if getattr(job, name):
                yield f"{option_name(name)}: --sync-mode must say how the code is fetched: git or rsync"
    if job.model_source and not job.model_name:
        yield "--model-source: --model-name must name the model"
    if job.shell and not (len(job.command) == 1 or (job.command[:1] and job.command[0].endswith(".sh"))):
        yield f"--shell: {job.command[0]!r} and its words are no shell line; quote them as one"


def quantity_problem(label: str, text: str, parse: Callable[[str], object]) -> Iterable[str]:
    """What the parser says against the text."""
    try:
        parse(text)
    except ValueError as error:
        yield f"{label}: {error}"


def _starts_processes(command: tuple[str, ...]) -> bool:
    if is_python_file(command) or _is_shell_line(command) or command[0].endswith(".sh"):
        return True  # what a shell starts cannot be told
    words = " ".join(command)
    return "torchrun" in words or "torch.distributed" in words
