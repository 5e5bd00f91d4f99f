"""What is said between roles: requests, answers and the values in them."""
