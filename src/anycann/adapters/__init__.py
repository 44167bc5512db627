"""Frameworks whose programs run here as they are: each package is the plug-in of one framework."""
