"""torch.compile: graphs of ATen operators to the compile engine, and what runs them on torch's memory."""
