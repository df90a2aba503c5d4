"""HTTP: from bytes on a socket to a query, and back. Computes nothing."""
