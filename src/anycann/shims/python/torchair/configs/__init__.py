"""Configuration of graph mode."""
