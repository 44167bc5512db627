"""What TorchAir's own modules share."""
