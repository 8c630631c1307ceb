"""What a trace takes for granted, and what follows when that turns out not to hold."""
