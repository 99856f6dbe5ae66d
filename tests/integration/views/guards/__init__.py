"""What is kept from breaking views: writes to them, changes of what they read, cleanup of what they need."""
