"""Every architecture that transformers registers, built small by general rules and measured.

`python -m corpus.architectures` runs them. Reads nothing from the network.
"""
