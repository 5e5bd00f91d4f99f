"""The NameNode's key-value store: ordered keys, edits with preconditions, one log.

The rest of the NameNode sees only `interface.py`. KV.md beside this folder describes the files byte
for byte, and what a crash leaves behind.
"""
