"""Random crashes of a DataNode: requests of all kinds, processes that are killed, power that goes
at any step, two volumes and damaged files, on a simulated disk and in virtual time.

What an answer said must never be forgotten, and no damaged byte may be served. A replica may be
lost to damage, but then it is dead and says so; a volume that cannot be used costs only itself.
"""
