"""`holdfast sweep`: every method with the same number of trials and seeds, compared in pairs."""
