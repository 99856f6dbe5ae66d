"""HTTP: requests, bodies, responses, streams and routing."""
