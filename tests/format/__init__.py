"""The files on disk, byte for byte."""
