"""The cases, by what their code is for."""
