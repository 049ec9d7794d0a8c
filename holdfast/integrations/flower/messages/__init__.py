"""What crosses the wire, validated before it is decoded."""
