"""The models that BERT is compared with, for `compare` and for teaching."""
