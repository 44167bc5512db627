"""`torchair.dynamo_export`: a model as a file for atc."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from anycann.adapters.torch.torchair.compiler_config import CompilerConfig
from anycann.support.logging import get_logger


def dynamo_export(
    *args: Any,
    model: Any,
    export_path: str = "export_file",
    export_name: str = "export",
    dynamic: bool = False,
    config: CompilerConfig | None = None,
    **kwargs: Any,
) -> None:
    """Write `export_path`/`export_name`.air, the graph of `model` for these arguments with its weights: an ONNX file, which atc compiles.

    dynamic: sizes of the arguments stay open, as far as the model lets them. Raises UnsupportedError for operators without translation.
    """
    import onnx
    import onnx_ir as ir
    import torch
    from torch.utils._pytree import tree_map_only

    from anycann.frontends.torch_fx.exported import model_of

    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), (args, kwargs))
    shapes = tree_map_only(torch.Tensor, lambda tensor: (torch.export.Dim.AUTO,) * tensor.dim(), (args, kwargs)) if dynamic else None
    on_host = all(weight.device.type == "cpu" for weight in (*model.parameters(), *model.buffers()))
    module = model if on_host else copy.deepcopy(model).cpu()
    with torch.no_grad():
        program = torch.export.export(module, args, kwargs, dynamic_shapes=None if shapes is None else (*shapes[0], *shapes[1].values()))
    path = Path(export_path) / f"{Path(export_name).name}.air"
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(ir.to_proto(model_of(program)), path)
    get_logger("torchair").info("exported to %s", path)
