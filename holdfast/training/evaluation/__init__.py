"""How every group fares: reports, criteria, paired comparison."""
