"""`torchair.get_npu_backend(compiler_config=config)`: the backend of torch.compile with the options of TorchAir."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anycann.adapters.torch.torchair.compiler_config import CompilerConfig


def get_npu_backend(
    *, compiler_config: CompilerConfig | None = None, custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None
) -> Callable[..., Any]:
    """What torch.compile takes as `backend`. `options` of torch.compile change the configuration, as documented for npugraph_ex."""
    config = CompilerConfig() if compiler_config is None else compiler_config

    def npu_backend(module: Any, example_inputs: Sequence[Any], **keywords: Any) -> Callable[..., Any]:
        config.take_options(keywords.get("options") or {})
        return _backend(config, custom_decompositions or {})(module, example_inputs)

    return npu_backend


def get_compiler(compiler_config: CompilerConfig | None = None) -> Callable[[Any, Sequence[Any]], Callable[..., Any]]:
    """A compiler of single graphs of ATen operators, for AOTAutograd's `fw_compiler`: called with a graph and its inputs."""
    config = CompilerConfig() if compiler_config is None else compiler_config

    def compile_graph(module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        compiled: Callable[..., Any] = _backend(config, {})._graph(module, "inference", example_inputs, ())
        return compiled

    return compile_graph


def _backend(config: CompilerConfig, extra: Mapping[Any, Callable[..., Any]]) -> Any:
    from anycann.adapters.torch.graph.backend import Backend, Settings
    from anycann.adapters.torch.torchair.debugging import Debugging

    debugging = Debugging(config)
    return Backend(Settings(replace=debugging.replaced, watch=debugging.watch, decompositions=extra))
