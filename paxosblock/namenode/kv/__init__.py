"""The NameNode's key-value store: ordered keys, transactions with preconditions, one log.

`interface.py` is what the rest of the NameNode sees. KV.md beside this folder tells the files
byte for byte and what a crash leaves behind.
"""
