"""CREST's experiments, printed numbers and claims.

Yang, Kang and Mirzasoleiman, "Towards Sustainable Learning: Coresets for Data-efficient Deep Learning" (ICML 2023),
https://arxiv.org/abs/2306.01244. Sections, tables and figures are numbered as in Chapter 2 of
Yang's dissertation (UCLA 2024), https://escholarship.org/uc/item/0399v1qw, and in its appendices.
"""
