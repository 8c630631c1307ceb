"""Write code objects from facts and a plan."""
