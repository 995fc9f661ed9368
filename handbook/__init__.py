"""What the documentation's pages are completed with when the site is built: `make docs`."""
