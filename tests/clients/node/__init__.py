"""LanceDB's client for Node.js, as it is published."""
