"""Ditto's experiments, printed numbers and claims.

Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through Personalization" (ICML 2021),
https://arxiv.org/abs/2012.04221, whose numbering of sections, tables and figures is used.
"""
