"""Models that stock `torch.compile` captures whole, and that patching must not harm."""
