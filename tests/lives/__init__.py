"""Random lives of a whole cluster on simulated disks, in one process, in virtual time, by a seed.

The NameNode, DataNodes, writers and readers are the real ones; simulated are time, threads, disks
and the network between them (`world.py`, `network.py`). `life.py` and `trouble.py` are what happens
to a cluster, `users.py`, `one_file.py`, `rivals.py` and `who_may.py` who uses it, `keepsakes.py`
and `memories.py` who looks at its past, `strangers.py` who may not; `checks.py` and `promises.py`
what must hold all the time and in the end, `planted_faults.py` what must be found.
"""
