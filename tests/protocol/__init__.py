"""The rules of PROTOCOL.md, one test per rule."""
