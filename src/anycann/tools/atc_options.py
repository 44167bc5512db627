"""Every option of `atc` as data: name, accepted values, default, and what becomes of it here.

Names and defaults are those of GE's `atc` (CANN 8), groups those of its `--help`. `State` says what this implementation does with a value
that differs from the default. The last group is AnyCANN's own.
"""

from __future__ import annotations

from anycann.tools.atc_option import IMPL_MODES, PRECISION_MODES, PRECISION_V2, Kind, Option, rows_of

_SILICON = "it only tunes Ascend silicon"
_GE = "it only steers the scheduling of Ascend's own compiler"
_QUANTISE = "quantisation while converting is not there yet"
_ALWAYS = "it is always done, because shapes must be known"
_CACHE = "kernels are always cached, in the folder of ANYCANN_CACHE_DIR"


def _general() -> tuple[Option, ...]:
    done, _, _ = rows_of("General")
    return (
        done("help", Kind.SWITCH, "false", "Show this text."),
        done(
            "mode",
            Kind.CHOICE,
            "0",
            "0: make an offline model; 1: offline or original model to JSON; 3: check the model only; 6: show what an offline model is.",
            *("0", "1", "3", "5", "6", "30"),
        ),
    )


def _input() -> tuple[Option, ...]:
    done, idle, _ = rows_of("Input")
    formats = ("NCHW", "NHWC", "ND", "NCDHW", "NDHWC")
    return (
        done("model", Kind.INPUT_FILE, "", "The trained model."),
        idle("weight", Kind.INPUT_FILE, "", "Weight file of a Caffe model.", reason="only Caffe models have a weight file"),
        done("om", Kind.INPUT_FILE, "", "The model to show or to turn into JSON (modes 1 and 6)."),
        done("framework", Kind.CHOICE, "", "0: Caffe; 1: MindSpore; 3: TensorFlow; 5: ONNX.", "0", "1", "3", "5"),
        done("input_format", Kind.CHOICE, "NCHW", "Which axes of an input are height and width; NHWC for TensorFlow.", *formats),
        done("input_shape", Kind.TEXT, "", 'Shapes of the inputs: "a:1,3,224,224;b:1~10,-1;scalar:".'),
        idle("input_hint_shape", Kind.TEXT, "", "A usual shape of a dynamic input.", reason="sizes are seen when they are met"),
        done("input_shape_range", Kind.TEXT, "", 'Deprecated spelling of ranges: "a:[1~10,3,224,224]".'),
        done("dynamic_batch_size", Kind.TEXT, "", 'Batch sizes of a dynamic model: "1,2,4,8".'),
        done("dynamic_image_size", Kind.TEXT, "", 'Image sizes of a dynamic model: "224,224;448,448".'),
        done("dynamic_dims", Kind.TEXT, "", 'One value for each -1 in --input_shape, by profile: "1,128;4,256".'),
        done("singleop", Kind.INPUT_FILE, "", "A JSON list of single operators; --output is the folder of their models."),
    )


def _output() -> tuple[Option, ...]:
    done, _, _ = rows_of("Output")
    return (
        done("output", Kind.OUTPUT_PATH, "", "Path and name of the offline model, without .om."),
        done("output_type", Kind.TEXT, "", 'Element type of the outputs: "FP16", or "node:0:FP16;other:1:FP32".'),
        done("check_report", Kind.OUTPUT_PATH, "check_result.json", "Where mode 3 writes its findings."),
        done("json", Kind.OUTPUT_PATH, "", "Where mode 1 writes the JSON."),
        done("host_env_os", Kind.CHOICE, "linux", "Operating system the model will run on.", "linux"),
        done("host_env_cpu", Kind.CHOICE, "", "Processor the model will run on; absent means this one.", "x86_64", "aarch64"),
    )


def _target() -> tuple[Option, ...]:
    done, idle, _ = rows_of("Target")
    return (
        done("soc_version", Kind.TEXT, "host", "An Ascend name takes that chip's documented defaults; host keeps the model's dtypes."),
        idle("virtual_type", Kind.ZERO_ONE, "0", "Run on virtual devices.", reason=_SILICON),
        idle("core_type", Kind.CHOICE, "AiCore", "Which cores run the kernels.", "AiCore", "VectorCore", reason=_SILICON),
        idle("aicore_num", Kind.TEXT, "", "How many cores are used.", reason=_SILICON),
        idle("device_id", Kind.TEXT, "0", "The device that tuning uses.", reason=_SILICON),
    )


def _feature() -> tuple[Option, ...]:
    done, idle, later = rows_of("Feature")
    return (
        done("out_nodes", Kind.TEXT, "", 'Outputs of the offline model: "node:0;other:1", or names of output tensors.'),
        done("input_fp16_nodes", Kind.TEXT, "", 'Inputs that are given in fp16: "a;b".'),
        done("insert_op_conf", Kind.INPUT_FILE, "", "AIPP configuration: pictures as they come become what the model takes."),
        later("op_name_map", Kind.INPUT_FILE, "", "Names of custom operators.", reason="custom operators are not there yet"),
        done("is_input_adjust_hw_layout", Kind.TEXT, "false", 'Inputs of --input_fp16_nodes are NC1HWC0: "true,false".'),
        done("is_output_adjust_hw_layout", Kind.TEXT, "false", 'Outputs are fp16 NC1HWC0: "true,false", one for each.'),
        idle(
            "external_weight",
            Kind.CHOICE,
            "0",
            "1: a file for each weight; 2: one for all.",
            "0",
            "1",
            "2",
            reason="weights are always in the .om",
        ),
    )


def _model_tuning() -> tuple[Option, ...]:
    done, idle, later = rows_of("Model Tuning")
    return (
        idle("disable_reuse_memory", Kind.ZERO_ONE, "0", "1: give every tensor memory of its own.", reason="memory is always reused"),
        done("fusion_switch_file", Kind.INPUT_FILE, "", "Rules to switch off: lines `Rule:off`, or JSON with GraphFusion and UBFusion."),
        done("optimization_switch", Kind.TEXT, "", 'Rules to switch: "RuleA:off;RuleB:on".'),
        idle("enable_scope_fusion_passes", Kind.TEXT, "", "TensorFlow scope fusions.", reason="ONNX models have no scopes"),
        idle("enable_single_stream", Kind.TRUE_FALSE, "false", "Use one stream.", reason="a model is always one stream here"),
        idle("ac_parallel_enable", Kind.ZERO_ONE, "0", "Run AiCpu beside AiCore.", reason=_GE),
        idle("tiling_schedule_optimize", Kind.ZERO_ONE, "0", "Compute tiling on the device.", reason=_SILICON),
        idle("quant_dumpable", Kind.ZERO_ONE, "0", "Keep quantisation nodes dumpable.", reason=_GE),
        idle("enable_small_channel", Kind.ZERO_ONE, "0", "Fast path for few input channels.", reason=_SILICON),
        idle("enable_compress_weight", Kind.TRUE_FALSE, "false", "Compress weights for the chip.", reason=_SILICON),
        idle("compress_weight_conf", Kind.INPUT_FILE, "", "Nodes whose weights are compressed.", reason=_SILICON),
        later("compression_optimize_conf", Kind.INPUT_FILE, "", "Calibrate and quantise.", reason=_QUANTISE),
        later("cal_conf", Kind.INPUT_FILE, "", "Calibration configuration.", reason=_QUANTISE),
        idle("enable_attr_compression", Kind.TRUE_FALSE, "true", "Compress attributes in the file.", reason=_GE),
        idle("sparsity", Kind.ZERO_ONE, "0", "2:4 structured sparse weights.", reason=_SILICON),
        idle(
            "buffer_optimize",
            Kind.CHOICE,
            "l2_optimize",
            "On-chip buffers.",
            *("l1_optimize", "l2_optimize", "off_optimize"),
            reason=_SILICON,
        ),
        done("mdl_bank_path", Kind.TEXT, "", "Folder of the knowledge bank of subgraph tuning, in place of the user's."),
        done("oo_level", Kind.CHOICE, "O3", "O1: only what makes the model run; O3: every rule.", "O1", "O3"),
        idle("oo_constant_folding", Kind.TRUE_FALSE, "true", "Compute constant parts while converting.", reason=_ALWAYS),
        idle("oo_dead_code_elimination", Kind.TRUE_FALSE, "true", "Drop what no output needs.", reason=_ALWAYS),
        idle("topo_sorting_mode", Kind.CHOICE, "1", "Order of nodes.", "0", "1", "2", "3", reason=_GE),
        idle("multi_stream_parallel_mode", Kind.TEXT, "", "Streams of one model.", reason=_GE),
        idle("static_model_ops_lower_limit", Kind.TEXT, "", "Smallest static part.", reason=_GE),
        idle("h2d_overlapped_with_compute", Kind.TEXT, "", "Copy inputs while computing.", reason="there is no copy to a device"),
        later("cluster_config", Kind.INPUT_FILE, "", "Devices of a distributed model.", reason="distributed models are not there yet"),
        later("hccl_sub_comm_config", Kind.TEXT, "", "Communication groups.", reason="distributed models are not there yet"),
        idle("raw_ge_options", Kind.TEXT, "", "Options handed to GE as they are.", reason=_GE),
    )


def _operator_tuning() -> tuple[Option, ...]:
    done, idle, _ = rows_of("Operator Tuning")
    return (
        done("precision_mode", Kind.CHOICE, "", "Which dtypes compute; the default is the chip's.", *PRECISION_MODES),
        done("precision_mode_v2", Kind.CHOICE, "", "The same in newer names.", *PRECISION_V2),
        done("op_precision_mode", Kind.INPUT_FILE, "", "Per operator type: lines `OpType=high_precision` of an .ini file."),
        done("modify_mixlist", Kind.INPUT_FILE, "", 'Operator types that mixed precision leaves alone: {"black-list": {"to-add": [...]}}.'),
        done("keep_dtype", Kind.INPUT_FILE, "", "Operators that keep the model's dtype: lines with a node's name, or `OpType::Type`."),
        done("customize_dtypes", Kind.INPUT_FILE, "", "The same: lines `node::InputDtype:float32,OutputDtype:float32`."),
        idle("allow_hf32", Kind.TRUE_FALSE, "", "Shortened fp32 for convolution and matmul.", reason="fp32 always computes in full fp32"),
        idle("is_weight_clip", Kind.ZERO_ONE, "1", "Clip infinite weights.", reason="weights are kept as they are"),
        done("op_select_implmode", Kind.CHOICE, "high_performance", "Exact kernels, or faster approximate ones.", *IMPL_MODES),
        done("optypelist_for_implmode", Kind.TEXT, "", 'Operator types --op_select_implmode is meant for: "Conv,Gelu".'),
        done("op_bank_path", Kind.TEXT, "", "Folder of the knowledge bank of operator tuning, in place of the user's."),
        done("auto_tune_mode", Kind.TEXT, "", 'Tune the kernels before compiling, as `aoe --job_type=2` does: "RL", "GA" or "RL,GA".'),
    )


def _debug() -> tuple[Option, ...]:
    done, idle, _ = rows_of("Debug")
    levels = ("0", "1", "2", "3", "4")
    return (
        done("log", Kind.LEVEL, "null", "How much is logged on standard error."),
        done("display_model_info", Kind.ZERO_ONE, "0", "1: show the offline model after making it."),
        done("dump_mode", Kind.ZERO_ONE, "0", "1: mode 1 writes inferred shapes too."),
        idle("op_debug_level", Kind.CHOICE, "0", "Keep intermediate files of kernels.", *levels, reason="kernel files are not kept yet"),
        idle("debug_dir", Kind.OUTPUT_PATH, "./kernel_meta", "Where kernel files are kept.", reason="kernel files are not kept yet"),
        idle("op_debug_config", Kind.INPUT_FILE, "", "Memory checks of kernels.", reason=_SILICON),
        idle("save_original_model", Kind.TRUE_FALSE, "false", "Keep the original model in the file.", reason=_GE),
        idle("status_check", Kind.ZERO_ONE, "0", "Check for overflow.", reason=_SILICON),
        idle("op_compiler_cache_mode", Kind.CHOICE, "disable", "Kernel cache.", *("enable", "force", "disable"), reason=_CACHE),
        idle("op_compiler_cache_dir", Kind.OUTPUT_PATH, "", "Folder of the kernel cache.", reason=_CACHE),
        idle("shape_generalized_build_mode", Kind.TEXT, "shape_precise", "Generalise shapes.", reason="sizes are seen when they are met"),
        idle("atomic_clean_policy", Kind.ZERO_ONE, "0", "How atomic workspaces are cleared.", reason=_SILICON),
        idle("deterministic", Kind.ZERO_ONE, "0", "Same result on every run.", reason="results are always the same on every run"),
        idle(
            "deterministic_level",
            Kind.CHOICE,
            "0",
            "The same in levels.",
            "0",
            "1",
            "2",
            "3",
            reason="results are always the same on every run",
        ),
        idle("jit_compile", Kind.CHOICE, "1", "Compile or use prebuilt kernels.", "0", "1", "2", reason="kernels are always compiled"),
        idle("export_compile_stat", Kind.CHOICE, "1", "Statistics of fusion.", "0", "1", "2", reason="use --explain"),
    )


def _ours() -> tuple[Option, ...]:
    done, _, _ = rows_of("AnyCANN")
    return (
        done("explain", Kind.SWITCH, "false", "Print what each rule did, or why it did not apply."),
        done(
            "target",
            Kind.TEXT,
            "host",
            "Instruction set to compile for: host, sse, avx2, avx512, neon, sve, znver4; features may follow (avx2,+avxvnni).",
        ),
        done("workers", Kind.NUMBER, "", "Processes that compile kernels; absent means one for each core."),
        done("message_format", Kind.CHOICE, "text", "json: print one JSON object instead of text.", "text", "json"),
        done("traceback", Kind.SWITCH, "false", "Show where in AnyCANN an error was raised."),
    )


def _table() -> dict[str, Option]:
    groups = (_general(), _input(), _output(), _target(), _feature(), _model_tuning(), _operator_tuning(), _debug(), _ours())
    return {option.name: option for group in groups for option in group}


OPTIONS = _table()
