"""The data of tables over HTTP, with the shapes of the specification."""
