"""What the rounds of a trained model do: gates, entropy, hull distance, corrections, importance, dynamics."""
