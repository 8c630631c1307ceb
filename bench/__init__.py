"""What bcmend costs, beside stock torch.compile and beside code mended by hand.

`python -m bench` prints the ratios; `python -m pytest bench` takes them through pytest-benchmark.
"""
