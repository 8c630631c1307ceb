"""What a trace knows of objects: who holds which."""
