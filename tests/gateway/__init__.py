"""The gateway, as programs see it that know nothing of this project."""
