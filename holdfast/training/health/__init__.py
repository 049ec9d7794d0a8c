"""Whether a result is to be trusted: checks of what methods assume, over what a run observed."""
