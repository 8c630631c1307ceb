"""The sites of mended code, and what traces have found out about them."""
