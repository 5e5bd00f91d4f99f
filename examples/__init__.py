"""Programs to read and to run: nothing here is in the wheel."""
