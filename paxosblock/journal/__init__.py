"""A log of records in segments, of which each owner says what its records mean (DESIGN.md).

The catalog's journal (`namenode/kv/journal.py`) and the log of small replicas
(`datanode/store/small_log.py`) are kept by it.
"""
