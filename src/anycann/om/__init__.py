"""The offline model: what a compiled program is, and the file it is kept in."""
