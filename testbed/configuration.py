"""The files that the programs inside a test bed read, as values. JSON is YAML, so no YAML is written."""

import base64
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from testbed.images import PAUSE
from testbed.layout import API_PORT, BRIDGE, NODE, PODS, SERVICES, TOKEN_PORT, Layout
from testbed.places import HERE
from testbed.users import PEOPLE, SYSTEM, User, new_tokens, token_file

Object = dict[str, Any]

LOCAL_SERVER = f"https://127.0.0.1:{API_PORT}"
CNI_PLUGINS = "/usr/lib/cni"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


def write_configuration(bed: Layout, snapshotter: str) -> None:
    """Write every file that is known before anything runs."""
    tokens = new_tokens()
    shutil.rmtree(bed.logs, ignore_errors=True)
    for folder in (bed.logs, bed.kubeconfigs, bed.folder / "cni"):
        folder.mkdir(parents=True)
    _write(bed.folder / "tokens.csv", token_file(tokens))
    _write(bed.folder / "token.key", new_tokens()["admin"])
    _write(bed.folder / "token-webhook", json.dumps(token_webhook()))
    _write(bed.folder / "kubelet.yaml", json.dumps(kubelet(bed)))
    _write(bed.folder / "containerd.toml", containerd(bed, snapshotter))
    _write(bed.folder / "cni/10-bridge.conflist", json.dumps(cni()))
    _write(bed.folder / "Corefile", corefile(bed))
    for user in PEOPLE:
        for way, secret in ways(bed, user, tokens[user.name]).items():
            _write(bed.kubeconfig(user.name, way), json.dumps(kubeconfig(bed, user, secret)))
    for user in SYSTEM:
        secret = {"token": tokens[user.name]}
        _write(bed.kubeconfig(user.name), json.dumps(kubeconfig(bed, user, secret, LOCAL_SERVER)))


def ways(bed: Layout, user: User, token: str) -> dict[str, Object]:
    """The ways a person proves who they are; the first, without a name, is the client certificate."""
    pair = bed.certificates / user.name
    certificate = {"client-certificate": f"{pair}.crt", "client-key": f"{pair}.key"}
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(HERE / "tokens.py"), "mint", str(bed.folder / "token.key"), user.name],
        "interactiveMode": "Never",
    }
    return {"": certificate, "token": {"token": token}, "exec": {"exec": plugin}}


def kubeconfig(bed: Layout, user: User, secret: Object, server: str = "") -> Object:
    """A kubeconfig with one cluster, one user, one context."""
    authority = base64.b64encode((bed.certificates / "ca.crt").read_bytes()).decode()
    cluster = {"server": server or bed.server, "certificate-authority-data": authority}
    context = {"cluster": "testbed", "user": user.name, "namespace": user.namespace or "default"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": cluster}],
        "users": [{"name": user.name, "user": secret}],
        "contexts": [{"name": "testbed", "context": context}],
        "current-context": "testbed",
    }


def token_webhook() -> Object:
    """How the API server asks about the tokens of the exec plug-in."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "webhook", "cluster": {"server": f"http://127.0.0.1:{TOKEN_PORT}"}}],
        "users": [{"name": "apiserver", "user": {}}],
        "contexts": [{"name": "webhook", "context": {"cluster": "webhook", "user": "apiserver"}}],
        "current-context": "webhook",
    }


def kubelet(bed: Layout) -> Object:
    """A kubelet that runs beside others on a machine it does not own."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": str(bed.certificates / "ca.crt")}, "anonymous": {"enabled": False}},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{bed.cgroup}",
        "clusterDNS": [BRIDGE],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "enforceNodeAllocatable": [],
        "evictionHard": dict.fromkeys(("imagefs.available", "memory.available", "nodefs.available"), "0%"),
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "maxPods": 110,
        # In the usual folder kubelets of one machine remove each other's logs: they are of pods they do not know.
        "podLogsDir": str(bed.folder / "pod-logs"),
        # Operators wait for the certificates in their Secret; a minute is the default.
        "syncFrequency": "2s",
        "nodeStatusReportFrequency": "10s",
    }


def containerd(bed: Layout, snapshotter: str) -> str:
    """containerd with folders of its own."""
    return f"""version = 2
root = "{bed.folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # Without it every pod fails where CAP_SYS_RESOURCE is missing.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{bed.folder}/cni"
"""


def cni() -> Object:
    """Pods hang on the bridge of their test bed."""
    routes = [{"dst": "0.0.0.0/0"}]
    bridge = {
        "type": "bridge",
        "bridge": "bridge0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": routes, "dataDir": "/run/cni"},
    }
    return {"cniVersion": "0.4.0", "name": "testbed", "plugins": [bridge]}


def corefile(bed: Layout) -> str:
    """The names of services and pods; nothing is asked of any other server."""
    return f""".:53 {{
  bind {BRIDGE}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {bed.kubeconfig("coredns")}
    pods insecure
    ttl 1
  }}
}}
"""


def api_server(bed: Layout) -> list[str]:
    """The API server's options."""
    pair = bed.certificates
    keys = pair / "service-accounts.key"
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        f"--secure-port={API_PORT}",
        f"--advertise-address={BRIDGE}",
        f"--tls-cert-file={pair}/apiserver.crt",
        f"--tls-private-key-file={pair}/apiserver.key",
        f"--client-ca-file={pair}/ca.crt",
        f"--kubelet-client-certificate={pair}/admin.crt",
        f"--kubelet-client-key={pair}/admin.key",
        f"--token-auth-file={bed.folder}/tokens.csv",
        f"--authentication-token-webhook-config-file={bed.folder}/token-webhook",
        "--authentication-token-webhook-cache-ttl=1s",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={keys}",
        f"--service-account-signing-key-file={keys}",
        "--authorization-mode=Node,RBAC",
        f"--service-cluster-ip-range={SERVICES}",
        "--allow-privileged=true",
        "--enable-aggregator-routing=true",
        "--kubelet-preferred-address-types=InternalIP",
        f"--cert-dir={bed.folder}/apiserver",
    ]


def commands(bed: Layout) -> dict[str, list[str]]:
    """The options of the other programs."""
    manager = bed.kubeconfig("system:kube-controller-manager")
    scheduler = bed.kubeconfig("system:kube-scheduler")
    etcd = "http://127.0.0.1:2379"
    return {
        "etcd": [
            f"--data-dir={bed.folder}/etcd",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
        ],
        "kube-apiserver": api_server(bed),
        "kube-controller-manager": [
            f"--kubeconfig={manager}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={bed.certificates}/service-accounts.key",
            f"--root-ca-file={bed.certificates}/ca.crt",
            f"--cert-dir={bed.folder}/manager",
            "--concurrent-job-syncs=20",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ],
        "kube-scheduler": [
            f"--kubeconfig={scheduler}",
            "--leader-elect=false",
            f"--cert-dir={bed.folder}/scheduler",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ],
        "kwok": [
            f"--kubeconfig={bed.kubeconfig('kwok')}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-label-selector=type=kwok",
            "--node-lease-duration-seconds=40",
        ],
        "coredns": ["-conf", f"{bed.folder}/Corefile"],
        "kube-proxy": [
            f"--kubeconfig={bed.kubeconfig('system:kube-proxy')}",
            "--proxy-mode=iptables",
            "--conntrack-max-per-core=0",
            f"--hostname-override={NODE}",
            f"--cluster-cidr={PODS}",
        ],
        "kubelet": [
            f"--config={bed.folder}/kubelet.yaml",
            f"--kubeconfig={bed.kubeconfig(f'system:node:{NODE}')}",
            f"--hostname-override={NODE}",
            f"--node-ip={BRIDGE}",
            f"--root-dir={bed.folder}/kubelet",
            f"--cert-dir={bed.folder}/kubelet/pki",
        ],
    }


def _write(path: Path, content: str) -> None:
    path.write_text(content)
    path.chmod(0o600)
