"""Models that are a class of transformers and a small configuration; several lists share them."""
