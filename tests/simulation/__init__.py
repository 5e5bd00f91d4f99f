"""Random schedules of the whole protocol, by seed."""
