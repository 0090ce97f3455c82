"""The HTTP server: `regard serve`."""
