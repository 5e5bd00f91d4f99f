"""The chunk-consensus protocol as plain state machines: messages in, messages and effects out.

Nothing here does I/O, reads a clock or draws a random number. PROTOCOL.md beside this file holds
the numbered rules; the way of a chunk is `write` -> `register` -> (`recovery`) -> `finalize` ->
`read`.
"""
