"""`import aclruntime`: the module below ais_bench, by AnyCANN."""

from anycann.tools.ais_bench.inference import InferenceSession, model
from anycann.tools.ais_bench.inference import SessionOptions as session_options
from anycann.tools.ais_bench.tensors import BaseTensor, MemorySummary, Tensor
from anycann.tools.ais_bench.tensors import DataType as dtype
from anycann.tools.ais_bench.tensors import TensorDescription as tensor_desc

__all__ = ["BaseTensor", "InferenceSession", "MemorySummary", "Tensor", "dtype", "model", "session_options", "tensor_desc"]
