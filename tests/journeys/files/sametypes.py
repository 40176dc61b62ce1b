import json, sys
old, new = ({x["name"]: x for x in json.load(open(f))} for f in sys.argv[1:])
bad = [(n, k) for n, x in old.items() for k, v in x.items() if n not in new or k not in new[n] or type(new[n][k]) is not type(v)]
sys.exit(str(bad) if bad else 0)
