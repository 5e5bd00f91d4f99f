"""Common ground, without I/O: units, settings, formats, checksums."""
