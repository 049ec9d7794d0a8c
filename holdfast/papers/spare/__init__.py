"""SPARE's experiments, printed numbers and claims.

Yang, Gan, Dziugaite and Mirzasoleiman, "Identifying Spurious Biases Early in Training through the Lens of Simplicity
Bias" (AISTATS 2024),
https://arxiv.org/abs/2305.18761. Sections, tables and figures are numbered as in Chapter 5 of
Yang's dissertation (UCLA 2024), https://escholarship.org/uc/item/0399v1qw, and in its appendices.
"""
