"""Attention: of training (with gradients), of inference (with caches, pages and quantised keys), and what merges and stores their parts."""
