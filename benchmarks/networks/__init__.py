"""Architectures in plain torch, for models whose publishers ship weights only and for networks with random weights."""
