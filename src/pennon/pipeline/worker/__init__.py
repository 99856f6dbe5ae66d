"""The worker: it claims jobs, holds their leases and runs them."""
