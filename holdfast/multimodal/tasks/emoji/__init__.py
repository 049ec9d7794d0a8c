"""Real drawings on coloured grounds: a planted shortcut with outlines for free."""
