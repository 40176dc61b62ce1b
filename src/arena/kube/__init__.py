"""The one package that speaks to the API server: who one is, one request, a list, a watch, a stream.

    access = config.find(env=os.environ, home=Path.home())
    with Api(access) as api:
        api.get("/version")["gitVersion"]

Our own and thin: client libraries decode whole objects, and decoding is what costs. Nothing here knows a job.
"""
