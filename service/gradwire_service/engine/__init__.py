"""The engine: from an admitted query to arrays, on a device. Knows no HTTP."""
