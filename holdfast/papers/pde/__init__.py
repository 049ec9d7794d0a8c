"""PDE's (Progressive Data Expansion's) experiments, printed numbers and claims.

Deng, Yang, Mirzasoleiman and Gu, "Robust Learning with Progressive Data Expansion Against Spurious Correlation"
(NeurIPS 2023), https://arxiv.org/abs/2306.04949, whose numbering of sections, tables and figures is used.
"""
