"""Jobs that operators run on a cluster, through its API server."""
