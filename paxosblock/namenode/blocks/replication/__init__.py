"""Care for the number and places of replicas: missing ones are copied, superfluous ones leave."""
