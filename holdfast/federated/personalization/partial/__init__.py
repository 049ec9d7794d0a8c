"""Personal layers: some parts of a model stay with each client, the others are shared (FedPer, FedRep, FedBN)."""
