"""What TensorFlow's TF_CONFIG tells each replica, shown without TensorFlow: the replicas meet over plain sockets.

Every other replica sends its number to ps-0, at the address of TF_CONFIG, and gets the sum of all numbers back.
Start it with `arena submit tf -b local --workers 2 --ps 1 "python tf_config.py"`.
"""

import json
import os
import socket
import time

PATIENCE = 30.0  # seconds until a peer must be there


def address(text):
    """Host and port of `host:port`."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def replicas(cluster):
    """Every replica of the cluster as (type, index), in a fixed order; the evaluator stands outside it."""
    return [(kind, index) for kind in sorted(cluster) if kind != "evaluator" for index in range(len(cluster[kind]))]


def serve(cluster):
    """As ps-0: take one number from every other replica, then tell each of them the sum."""
    others = len(replicas(cluster)) - 1
    with socket.create_server(address(cluster["ps"][0])) as server:
        server.settimeout(PATIENCE)
        peers = [server.accept()[0] for _ in range(others)]
        total = 0
        for peer in peers:
            name, number = peer.makefile().readline().split()
            print(f"ps-0 got {number} from {name}", flush=True)
            total += int(number)
        for peer in peers:
            peer.sendall(f"{total}\n".encode())
            peer.close()
    return total


def ask(cluster, name, number):
    """As any other replica: send the number to ps-0 and wait for the sum."""
    with connect(address(cluster["ps"][0])) as peer:
        peer.sendall(f"{name} {number}\n".encode())
        return int(peer.makefile().readline())


def connect(target):
    """A connection to a server that may not have started yet."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection = socket.create_connection(target, timeout=PATIENCE)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
            continue
        # A connect to a free port of this machine can meet itself.
        if connection.getsockname() != connection.getpeername():
            return connection
        connection.close()


def main():
    """Print TF_CONFIG, then meet the others."""
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    name = f"{task['type']}-{task['index']}"
    print(f"{name} TF_CONFIG {json.dumps(config, sort_keys=True)}", flush=True)
    if task["type"] == "evaluator":
        print(f"{name} is no part of the cluster", flush=True)
        return
    number = replicas(cluster).index((task["type"], int(task["index"]))) + 1
    total = serve(cluster) if name == "ps-0" else ask(cluster, name, number)
    print(f"{name} sent {number}, the sum is {total}", flush=True)


if __name__ == "__main__":
    main()
