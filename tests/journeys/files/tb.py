import os, shutil, time
os.makedirs("runs", exist_ok=True)
shutil.copy("events.bin", "runs/events.out.tfevents.1.host")
print("wrote")
time.sleep(20)
