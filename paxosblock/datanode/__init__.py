"""The DataNode: keeps replicas, and answers for each as one acceptor of the chunk consensus.

The way of a chunk: `served_stream.py` takes its frame from a data stream, `acceptor.py` finds its
block, `block.py` votes for it, the volume's `ReplicaStore` (`store/disk_format.py`;
`store/file_store.py` is the one of FORMAT.md) puts it on disk, `volumes/group_commit.py` makes it
durable. Control requests go through `control_requests.py`, which has missing chunks fetched by
`transfer.py`. `replica_reads.py` serves readers, `store/load.py` reads what a start finds on disk,
`reporter.py` keeps the NameNodes informed.
"""
