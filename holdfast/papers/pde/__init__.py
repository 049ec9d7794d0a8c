"""PDE (Progressive Data Expansion): its experiments, printed numbers and claims."""
