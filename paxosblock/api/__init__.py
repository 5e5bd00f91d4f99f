"""Messages between roles: requests, answers and the values in them."""
