"""The cluster as other people's libraries see it."""
