"""The operator's side of a federation on several machines: keys, proxy, SuperLink, who is admitted."""
