"""What the operators of choices and loops cost back ends, and what those do wrong with them."""
