"""Operations of a graph that are run in front of it, as programs of their own."""
