"""What a recording would take on other devices, and on more of them."""
