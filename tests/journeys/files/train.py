import argparse, os, time
p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int, default=2)
p.add_argument("--lr", type=float, default=0.1)
a = p.parse_args()
if os.environ.get("NEED_DATA"):
    open("data/x.csv").close()
r, w = os.environ["RANK"], os.environ["WORLD_SIZE"]
for e in range(1, a.epochs + 1):
    print(f"epoch {e} rank {r} of {w} lr {a.lr}")
    time.sleep(0.2)
if r == "0":
    open("model.txt", "w").write("model\n")
