"""What numpy computes for a session on the host, instead of kernels that would have to be compiled for each new size."""

from __future__ import annotations

# What numpy computes about as fast as a kernel where sizes are small, and without choosing anything by sizes.
_ELEMENTS = "Abs Add And Cast CastLike Ceil Clip Cos Div Equal Erf Exp Floor Gelu Greater GreaterOrEqual Identity IsInf IsNaN Less "
_MORE_ELEMENTS = "LessOrEqual Log Max Min Mod Mul Neg Not Or Pow Reciprocal Relu Round Sigmoid Sign Sin Sqrt Sub Sum Tanh Where Xor "
_MOVED = "Concat Constant ConstantOfShape Expand Flatten Gather NonZero Range Reshape Shape Size Slice Split Squeeze Tile Transpose Trilu "
_CHOSEN = "ArgMax ArgMin Compress GatherElements GatherND TopK "
_SUMS = "CumSum Gemm LayerNormalization LogSoftmax MatMul ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Softmax Unsqueeze"
QUICK_ON_HOST = frozenset((_ELEMENTS + _MORE_ELEMENTS + _MOVED + _CHOSEN + _SUMS).split())
HOST_TYPES = frozenset({"bool", "int32", "int64", "float32", "float64"})  # float16 and bfloat16 are slow in numpy, and round otherwise
