"""`torch_npu.contrib`: functions and layers for detection, speech and transformers."""

from anycann.adapters.torch.contrib import functions, layers, norms, quantised

FUNCTIONS = (
    "dropout_with_byte_mask",
    "fuse_add_softmax_dropout",
    "matmul_transpose",
    "npu_batched_multiclass_nms",
    "npu_bbox_coder_decode_xywh2xyxy",
    "npu_bbox_coder_encode_xyxy2xywh",
    "npu_bbox_coder_encode_yolo",
    "npu_ciou",
    "npu_diou",
    "npu_fast_condition_index_put",
    "npu_fused_attention",
    "npu_fused_attention_with_layernorm",
    "npu_giou",
    "npu_iou",
    "npu_multiclass_nms",
    "npu_ptiou",
    "npu_single_level_responsible_flags",
    "roll",
)
LAYERS = (
    "BiLSTM",
    "ChannelShuffle",
    "DCNv2",
    "DropoutWithByteMask",
    "Focus",
    "LabelSmoothingCrossEntropy",
    "Mish",
    "ModulatedDeformConv",
    "NpuCachedDropout",
    "NpuDropPath",
    "NpuFairseqDropout",
    "NpuPreGenDropout",
    "PSROIPool",
    "Prefetcher",
    "ROIAlign",
    "SiLU",
    "Swish",
)
NORMS = ("FastBatchNorm1d", "FastBatchNorm2d", "FastBatchNorm3d", "FastSyncBatchNorm")
QUANTISED = ("LinearA8W8Quant", "LinearQuant", "LinearWeightQuant", "MultiheadAttention", "QuantConv2d")
# module of torch_npu.contrib -> where its names are here
MODULES = dict.fromkeys(FUNCTIONS, functions) | dict.fromkeys(LAYERS, layers) | dict.fromkeys(QUANTISED, quantised)
MODULES |= dict.fromkeys(NORMS, norms)

__all__ = ["FUNCTIONS", "LAYERS", "MODULES", "NORMS", "QUANTISED", "functions", "layers", "norms", "quantised"]
