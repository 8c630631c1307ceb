"""Loops whose number of iterations depends on tensors."""
