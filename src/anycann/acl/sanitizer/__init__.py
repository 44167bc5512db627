"""The sanitizer of AscendCL programs: looks on at every call and says which line made which mistake. Off, nothing of it is imported."""
