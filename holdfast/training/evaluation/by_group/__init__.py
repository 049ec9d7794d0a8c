"""Any metric by group: classes, probabilities, quantities; several attributes, their intersections, with intervals."""
