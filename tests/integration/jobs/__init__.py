"""Jobs over both databases, over HTTP, and by command."""
