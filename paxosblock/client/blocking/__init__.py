"""The client for programs without asyncio: the same, on the event loop of another thread."""
