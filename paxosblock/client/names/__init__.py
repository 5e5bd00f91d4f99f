"""Names at the client: what a URL and a path mean, and changes of names."""
