"""Ditto (Li, Hu, Beirami and Smith, ICML 2021): its experiments, printed numbers and claims."""
