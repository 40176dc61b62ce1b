"""Words that name things of a cluster: what is read, and what is refused with the flag's name."""

from __future__ import annotations

from typing import Any

import pytest

from arena import cluster, declared
from arena.errors import SpecError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("all", {"operator": "Exists"}),
        ("gpu", {"key": "gpu", "operator": "Exists"}),
        ("gpu:NoExecute", {"key": "gpu", "operator": "Exists", "effect": "NoExecute"}),
        ("k=v:NoSchedule,Equal", {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}),
        ("k=v", {"key": "k", "operator": "Equal", "value": "v"}),
        ("k=:NoSchedule", {"key": "k", "operator": "Equal", "effect": "NoSchedule"}),
        ("a.b/c=d:PreferNoSchedule", {"key": "a.b/c", "operator": "Equal", "value": "d", "effect": "PreferNoSchedule"}),
        ("k:NoSchedule,Exists", {"key": "k", "operator": "Exists", "effect": "NoSchedule"}),
    ],
)
def test_tolerations(text: str, found: dict[str, str]) -> None:
    assert cluster.parse_toleration(text) == found


BAD = [
    ({"data": ["claim"]}, "--data: 'claim' names no path"),
    ({"data": ["claim:"]}, "--data: 'claim:' names no path"),
    ({"data": ["claim:data"]}, "--data: 'claim:data': the path 'data' does not begin with '/'"),
    ({"data": ["claim:/"]}, "--data: 'claim:/': nothing can be mounted over '/'"),
    ({"data": ["claim:/."]}, "nothing can be mounted over '/'"),
    ({"data": ["claim:/a/../.."]}, "--data"),
    ({"data": ["Claim:/a"]}, "--data: 'Claim' is no name of a claim"),
    ({"data": ["c:/a", "c:/b"]}, "--data: the claim 'c' is given twice"),
    ({"data": ["c:/a", "d:/a/"]}, "--data: /a is taken already, by --data"),
    ({"data": ["c:/a"], "data_dir": ["/a"]}, "--data-dir: /a is taken already"),
    ({"data_dir": ["a"]}, "--data-dir: 'a' does not begin with '/'"),
    ({"data_dir": ["/a:b"]}, "--data-dir: '/a:b': the path 'b'"),
    ({"data_dir": ["/"]}, "nothing can be mounted over '/'"),
    ({"config_file": ["a.json"]}, "--config-file: 'a.json' names no path"),
    ({"config_file": [":/a"]}, "--config-file"),
    ({"output": "claim"}, "--output: 'claim' is no folder of a claim"),
    ({"logdir": "logs"}, "--logdir: 'logs'"),
    ({"toleration": ["k=v:Never"]}, "--toleration: 'Never' is no effect"),
    ({"toleration": ["k=v:NoSchedule,In"]}, "--toleration: 'In' is no operator"),
    ({"toleration": ["k=v:NoSchedule,Exists"]}, "--toleration: 'k=v:NoSchedule,Exists': Exists takes no value"),
    ({"toleration": ["k,Equal"]}, "Equal needs a value"),
    ({"toleration": [""]}, "--toleration: '' is no toleration"),
    ({"toleration": ["a b"]}, "--toleration: 'a b' is no toleration"),
    ({"device": ["nvidia.com/gpu=1"]}, "--device: nvidia.com/gpu is asked for by --gpus"),
    ({"device": ["amd.com/gpu"]}, "--device: 'amd.com/gpu' is no device"),
    ({"device": ["amd.com/gpu=0"]}, "--device: 'amd.com/gpu=0': the count"),
    ({"device": ["a=1", "a=2"]}, "--device: a is given twice"),
    ({"workers": "0"}, "--workers: must be a whole number from 1"),
    ({"share_memory": "much"}, "--share-memory"),
    ({"sync_mode": "hdfs", "sync_source": "x"}, "--sync-mode: must be one of git, rsync"),
    ({"sync_mode": "git"}, "--sync-mode: --sync-source must say"),
    ({"sync_source": "x"}, "--sync-source: --sync-mode must say"),
    ({"model_source": "x"}, "--model-source: --model-name must name"),
    ({"image_pull_policy": "Sometimes"}, "--image-pull-policy: must be one of Always, IfNotPresent, Never"),
    ({"clean_task_policy": "some"}, "--clean-task-policy: must be one of Running, All, None"),
    ({"priority": "Very High"}, "--priority: 'Very High' is no name"),
    ({"scheduler": "a b"}, "--scheduler: 'a b' is no name"),
    ({"image_pull_secret": ["a/b"]}, "--image-pull-secret: 'a/b' is no name"),
    ({"image_pull_secret": ["a,b"]}, "--image-pull-secret: 'a,b' is no name"),
    ({"queue_name": "Q"}, "--queue-name: 'Q' is no name"),
    ({"shell": "bash", "command": ["echo", "a"]}, "--shell: 'echo' and its words are no shell line"),
]


@pytest.mark.parametrize("kind", ["job", "pytorch", "mpi", "tensorflow"])
@pytest.mark.parametrize(("values", "said"), BAD)
def test_what_cannot_be_is_refused_with_its_flag(kind: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        declared.build(kind, {"command": ["t.py"], **values})
    assert said in str(caught.value)


def test_everything_is_told_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        declared.build("job", {"command": "t.py", "data": ["a", "b"], "device": "x", "toleration": "a:b"})
    assert str(caught.value.why).count("--") == 4
