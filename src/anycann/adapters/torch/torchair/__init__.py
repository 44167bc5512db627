"""TorchAir: the names by which programs for Ascend ask torch.compile for graph mode (Ascend Extension for PyTorch, "TorchAir")."""
