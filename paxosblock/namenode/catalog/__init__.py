"""What is durable: each change is decided on a draft, and becomes one entry of the log."""
