"""Calls that are traced as something equal."""
