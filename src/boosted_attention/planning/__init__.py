"""What sizes that were not run would take, and standard models of equal cost."""
