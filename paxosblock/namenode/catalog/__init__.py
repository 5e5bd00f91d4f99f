"""The durable state: each change is decided on a draft, and becomes one entry of the log."""
