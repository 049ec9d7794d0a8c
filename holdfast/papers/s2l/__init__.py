"""S2L's experiments, printed numbers and claims.

Yang, Mishra, Chiang and Mirzasoleiman, "SmallToLarge (S2L): Scalable Data Selection for Fine-tuning Large Language
Models by Summarizing Training Trajectories of Small Models" (NeurIPS 2024),
https://arxiv.org/abs/2403.07384. Sections, tables and figures are numbered as in Chapter 3 of
Yang's dissertation (UCLA 2024), https://escholarship.org/uc/item/0399v1qw, and in its appendices.
"""
