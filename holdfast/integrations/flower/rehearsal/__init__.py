"""A whole deployment on one machine: processes, certificates, the app."""
