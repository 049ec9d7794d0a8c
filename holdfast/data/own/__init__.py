"""Your own data: from a path, a hub name or a Python object to checked examples, without code."""
