"""How it is said: frames, streams, control calls, and the port of a node."""
