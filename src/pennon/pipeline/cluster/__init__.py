"""Spark: its Java process, sessions, tasks and resources."""
