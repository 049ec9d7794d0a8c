"""The data of many clients, and how a pooled data set is dealt out to them."""
