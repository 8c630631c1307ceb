"""Gives ``None`` for a gradient to which only the sides not taken lead, as eager execution does."""
