"""A gateway: the role by which programs that do not know this project come to a cluster.

It has no state. Each door speaks one protocol over HTTP, and turns a request into calls of an
`AsyncClient`, which it makes as the user who asks.
"""
