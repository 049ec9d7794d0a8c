"""Experiments, printed numbers and claims of spurious-aware fine-tuning of vision-language models.

Yang, Nushi, Palangi and Mirzasoleiman, "Mitigating Spurious Correlations in Multi-modal Models during Fine-tuning"
(ICML 2023),
https://arxiv.org/abs/2304.03916. Sections, tables and figures are numbered as in Chapter 7 of
Yang's dissertation (UCLA 2024), https://escholarship.org/uc/item/0399v1qw, and in its appendices.
"""
