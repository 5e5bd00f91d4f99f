"""What a user does: install, command line, other programs."""
