"""Tests of Pennon."""
