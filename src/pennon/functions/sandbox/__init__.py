"""Function calls in child processes, so that code which kills its process or never returns costs only that process."""
