"""Communication between the roles: frames, streams, control calls, and the port of a node."""
