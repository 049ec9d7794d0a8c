"""What experiments are declared with, run by, kept in and judged by; the documents stand beside this folder."""
