"""`holdfast audit`: one module per audit."""
