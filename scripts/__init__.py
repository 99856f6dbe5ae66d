"""What the Makefile runs to set a machine up."""
