"""Hostile files, made from a seed: what stress_formats.py and the tests feed to the readers."""
