"""EPIC's experiments, printed numbers and claims.

Yang, Liu and Mirzasoleiman, "Not All Poisons are Created Equal: Robust Training against Data Poisoning" (ICML 2022),
https://proceedings.mlr.press/v162/yang22j.html. Sections, tables and figures are numbered as in Chapter 4 of
Yang's dissertation (UCLA 2024), https://escholarship.org/uc/item/0399v1qw, and in its appendices.
"""
