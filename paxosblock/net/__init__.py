"""The ways in which roles talk: frames, streams, control calls, and the port of a node."""
