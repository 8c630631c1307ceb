"""What is known about a function without running it."""
