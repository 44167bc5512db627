"""The configuration, by the name programs import it from."""

from anycann.adapters.torch.torchair.compiler_config import CompilerConfig

__all__ = ["CompilerConfig"]
