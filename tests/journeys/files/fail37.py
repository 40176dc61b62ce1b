import os, socket, sys, time
r, w = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
print(f"rank {r} up")
door = (os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", "0")))
if w > 1 and r == 0:                        # the clocks start when the last rank is up
    server = socket.create_server(("", door[1]), backlog=w)
    for peer in [server.accept()[0] for _ in range(w - 1)]:
        peer.sendall(b"g")
elif w > 1:
    while True:
        try:
            peer = socket.create_connection(door, timeout=5)
            break
        except OSError:
            time.sleep(0.3)
    peer.settimeout(None)
    peer.recv(1)
time.sleep(2 if r == 37 else 6)
if r == 37:
    print("bad sample 1234")
    sys.exit(3)
print("connection closed by peer")
sys.exit(1)
