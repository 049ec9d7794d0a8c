"""What a two-tower model leans on: detectors, accuracy by attribute, explanation maps, a person's verdict."""
