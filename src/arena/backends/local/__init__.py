"""This machine as a small cluster: real processes, detached and persistent.

    state       the folder of plain files per run: who writes what, by rename
    supervisor  one per job: waits its turn, starts the gang, ends it, restarts it
    keeper      one per replica: holds its pipe, writes its log and its code
    admission   whose turn it is; devices: who holds which GPU; memory: limits
    backend     the verbs

No process runs when no job does.
"""
