"""Graphs of PyTorch's ATen operators (torch.fx, as AOTAutograd and torch.export give them) in: one file per family of operators."""
