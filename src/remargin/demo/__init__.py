"""What `remargin demo` runs."""
