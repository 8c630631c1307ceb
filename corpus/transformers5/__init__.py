"""Twenty small random-weight models of transformers 5.4.0, each in evaluation and in training.

`python -m corpus.transformers5` runs them. Reads nothing from the network.
"""
