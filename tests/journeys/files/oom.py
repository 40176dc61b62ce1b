import subprocess, sys
m = sys.argv[1]
if m == "direct":
    x = b"x" * 300_000_000
if m == "gpu":
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 3.12 GiB is free.")
rc = subprocess.run([sys.executable, "-c", "x = b'x' * 300_000_000"]).returncode
print("child", rc)
sys.exit("DataLoader worker (pid 7) is killed by signal: Killed" if m == "child-fail" else 0)
