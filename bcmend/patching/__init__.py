"""Which functions an object reaches, and mended code on them."""
