"""Care for the number and places of replicas: what lacks is copied, what is too much leaves."""
