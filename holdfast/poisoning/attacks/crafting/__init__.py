"""What attacks share: aims, bases, brewing, surrogates, victims, the poisoned set."""
