"""Write a branch into the graph, by ``torch.where`` or ``torch.cond``."""
