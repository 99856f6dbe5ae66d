"""The worker: claims jobs, holds their leases and runs them."""
