"""The tuner: searches the spaces of kernel generators by measuring, and keeps what it finds in knowledge banks that compiling reads."""
