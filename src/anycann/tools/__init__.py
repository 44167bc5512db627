"""The commands: `anycann` with its subcommands, and `atc` under Ascend's option names."""
