"""A log of records in segments; what the records mean is their owner's (KV.md, FORMAT.md 8).

The catalog's journal (`namenode/kv/journal.py`) and the log of small replicas
(`datanode/store/small_log.py`) are kept by it.
"""
