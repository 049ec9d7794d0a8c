"""What CREST is compared with."""
