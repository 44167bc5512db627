"""`npu-smi`: the virtual devices, what this user's processes take of them, and how busy they are."""
