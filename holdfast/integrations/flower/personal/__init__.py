"""Personal models inside somebody else's ClientApp: the simulator's methods on one client."""
