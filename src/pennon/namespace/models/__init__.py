"""Models of requests and responses that the specification does not have."""
