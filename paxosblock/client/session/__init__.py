"""One client at its cluster: connections, the NameNode that leads, leases, retries."""
