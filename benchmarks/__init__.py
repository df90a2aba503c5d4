"""``make bench``: the service against its peers and against the floors. Run from the project's folder."""
