"""What is compiled for: registers, features, caches, threads, and the names Ascend gives its chips."""
