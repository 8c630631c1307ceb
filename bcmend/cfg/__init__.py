"""Control flow of canonical instructions: blocks, dominance, branches and loops."""
