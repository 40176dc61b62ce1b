set -e
arena delete mnist -n team-a
arena submit tf --name=mnist --namespace team-a --workers=2 --workerImage=$IMAGE --ps=1 --psImage=$IMAGE \
  --syncMode=git --syncSource=$GIT_URL --logdir=/training_logs "python code/sample/tf.py --epochs 2"
sleep 2
arena list -n team-a | awk '$1=="mnist"{print $2}' | grep -E 'PENDING|RUNNING|SUCCEEDED'
until arena get mnist -n team-a -o json | grep -q '"status": "SUCCEEDED"'; do sleep 2; done
arena get mnist --type tf -n team-a | grep '^Status: *SUCCEEDED'
arena logs mnist -n team-a --tail 2 | grep epoch
arena prune -n team-a --since 24h
