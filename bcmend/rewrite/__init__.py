"""From facts to new code: plan the sites, outline what moves, write the result."""
