"""The commands. They read options, call the library and print; logic lives below."""
