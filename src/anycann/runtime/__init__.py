"""Running a compiled program: memory, threads, loaded code, the executor and its hooks."""
