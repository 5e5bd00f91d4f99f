"""The port of a node: how a connection begins, and which peers are refused."""
