"""`holdfast federate`, its options, and the Flower app that the same options build."""
