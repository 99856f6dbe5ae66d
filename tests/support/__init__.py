"""What the tests share: real servers, started and stopped by them."""
