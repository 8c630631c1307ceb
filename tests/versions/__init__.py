"""Runs tests with every supported pair of a release of torch and a Python."""
