"""A recorded step on other devices, and on more of them."""
