"""What happens inside one attention layer."""
