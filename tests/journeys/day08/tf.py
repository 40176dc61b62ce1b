import argparse

p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int, default=2)
for e in range(1, p.parse_args().epochs + 1):
    print(f"epoch {e}", flush=True)
