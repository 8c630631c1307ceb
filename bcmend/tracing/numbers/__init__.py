"""Numbers that traced code takes out of tensors."""
