"""Experiments, printed numbers and claims of personalized federated learning with spurious features.

"Personalized Federated Learning with Spurious Features: An Adversarial Approach", a manuscript under review whose
authors are not named in it; its numbering of sections, tables and figures is used. Published work of nearly the
same title and method, with other numbers: https://openreview.net/forum?id=SF9o3-yP1WR.
"""
