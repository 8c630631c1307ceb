"""Small random-weight builds of real Hugging Face models, with the figures each has to reach.

`python -m corpus.models` measures them all. Reads nothing from the network: every model is made
from a configuration, and its weights are drawn from a fixed seed.
"""

from corpus.models.measure import Measurement, failures, measure
from corpus.models.registry import CASES, ModelCase, case_named

__all__ = ["CASES", "Measurement", "ModelCase", "case_named", "failures", "measure"]
