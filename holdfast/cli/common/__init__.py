"""What commands share: options read off the library, configuration files, progress."""
