"""CompilerConfig: all options of TorchAir. Which of them do something here is said in docs/torch-compile.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anycann.adapters.torch.torchair.options import Group, anything, choice, file, flag, folder, number, of_type, text

MODES = ("max-autotune", "reduce-overhead", "npugraph_ex")
# options=... of torch.compile, which belong to the mode npugraph_ex -> where they are here, and whether the sense is the opposite
GRAPH_OPTIONS: dict[str, tuple[str, bool]] = {
    "force_eager": ("debug.run_eagerly", False),
    "frozen_parameter": ("experimental_config.frozen_parameter", False),
    "remove_noop_ops": ("experimental_config.remove_noop_ops", False),
    "pattern_fusion_pass": ("experimental_config.pattern_fusion_pass", False),
    "inplace_pass": ("debug.aclgraph.disable_reinplace_inplaceable_ops_pass", True),
    "input_inplace_pass": ("debug.aclgraph.disable_reinplace_input_mutated_ops_pass", True),
    "reuse_graph_pool_in_same_fx": ("debug.aclgraph.disable_mempool_reuse_in_same_fx", True),
    "remove_cat_ops": ("debug.aclgraph.remove_cat_ops", False),
    "clone_input": ("debug.aclgraph.clone_input", False),
    "clone_output": ("debug.aclgraph.enable_output_clone", False),
    "capture_limit": ("debug.aclgraph.static_capture_size_limit", False),
    "use_graph_pool": ("aclgraph_config.use_custom_pool", False),
    "static_kernel_compile": ("experimental_config.aclgraph._aclnn_static_shape_kernel", False),
    "super_kernel_optimize": ("experimental_config.aclgraph._super_kernel_optimize", False),
    "super_kernel_optimize_options": ("experimental_config.aclgraph._super_kernel_optimize_options", False),
    "super_kernel_debug_options": ("experimental_config.aclgraph._super_kernel_debug_options", False),
    "post_grad_custom_pre_pass": ("post_grad_custom_pre_pass", False),
    "post_grad_custom_post_pass": ("post_grad_custom_post_pass", False),
    "dump_tensor_data": ("dump_config.enable_dump", False),
    "data_dump_stage": ("dump_config.data_dump_stage", False),
    "data_dump_dir": ("dump_config.dump_path", False),
}


class CompilerConfig(Group):
    """`config = CompilerConfig(); config.debug.graph_dump.type = "pbtxt"`. Wrong names and values raise ValueError."""

    def __init__(self) -> None:
        super().__init__(
            mode=choice("max-autotune", *MODES),
            debug=_debug(),
            aoe_config=Group(aoe_mode=choice(None, "2"), work_path=folder(), aoe_config_file=file()),
            export=_export(),
            dump_config=_dump(),
            fusion_config=Group(fusion_switch_file=file()),
            experimental_config=_experimental(),
            inference_config=Group(dynamic_gears_merge_policy=choice("zip", "zip", "product")),
            ge_config=_ge(),
            aclgraph_config=Group(use_custom_pool=None),
            npugraphex_config=Group(**dict.fromkeys(GRAPH_OPTIONS)),
            post_grad_custom_pre_pass=of_type(Callable),  # type: ignore[arg-type]
            post_grad_custom_post_pass=of_type(Callable),  # type: ignore[arg-type]
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompilerConfig) and dict(self.leaves()) == dict(other.leaves())

    __hash__ = None  # type: ignore[assignment]  # it changes

    def take_options(self, options: Mapping[str, Any]) -> None:
        """`options` of torch.compile. Raises ValueError for one that there is not."""
        for name, value in options.items():
            if name not in GRAPH_OPTIONS:
                raise ValueError(f"no option {name!r}; accepted: {', '.join(sorted(GRAPH_OPTIONS))}")
            path, opposite = GRAPH_OPTIONS[name]
            *groups, last = path.split(".")
            group: Any = self
            for step in groups:
                group = getattr(group, step)
            setattr(group, last, not value if opposite else value)


def _debug() -> Group:
    return Group(
        graph_dump=Group(type=choice(None, "txt", "pbtxt", "py"), path=None),
        data_dump=Group(type=choice(None, "npy"), path=None, filter=None),
        fx_summary=Group(type=choice(None, "csv"), skip_compile=flag(True)),
        run_eagerly=flag(),
        deadlock_check=flag(),
        aclgraph=Group(
            disable_reinplace_inplaceable_ops_pass=flag(),
            disable_reinplace_input_mutated_ops_pass=flag(),
            disable_mempool_reuse_in_same_fx=flag(),
            enable_output_clone=flag(),
            static_capture_size_limit=number(64, 1),
            clone_input=flag(True),
            remove_cat_ops=flag(True),
        ),
    )


def _export() -> Group:
    experimental = Group(enable_record_nn_module_stack=flag(), auto_atc_config_generated=flag(), enable_lite_export=flag())
    return Group(
        export_mode=flag(), export_path_dir=folder(), export_name=None, weight_name=None, inputs_name=None, experimental=experimental
    )


def _dump() -> Group:
    return Group(
        enable_dump=flag(),
        dump_path=folder(),
        dump_mode=choice("all", "input", "output", "all"),
        quant_dumpable=flag(),
        dump_step=text(r"^(\d+(-\d+)?(\||$))*$"),
        dump_layer=text(r'^[0-9a-zA-Z_" /\\.]*$'),
        dump_data=choice("tensor", "tensor", "stats"),
        dump_config_path=file(),
        data_dump_stage=choice("optimized", "original", "optimized"),
    )


def _experimental() -> Group:
    return Group(
        cc_parallel_enable=flag(),
        keep_inference_input_mutations=flag(True),
        memory_efficiency=flag(),
        frozen_parameter=flag(),
        static_model_ops_lower_limit=number(None, -1),
        jit_compile=choice("auto", "auto"),
        npu_fx_pass=flag(),
        aot_config_enable_joint_graph=flag(),
        aot_config_output_loss_index=anything(0),
        topology_sorting_strategy=choice("DFS", "BFS", "DFS", "RDFS", "StableRDFS"),
        enable_ref_data=flag(),
        enable_view_optimize=flag(True),
        remove_noop_ops=flag(True),
        tiling_schedule_optimize=flag(),
        pattern_fusion_pass=flag(True),
        aclgraph=Group(
            _aclnn_static_shape_kernel=flag(),
            _aclnn_static_shape_kernel_build_dir=of_type(str),
            _aclnn_static_shape_kernel_sym_value_range=of_type(list),
            _aclnn_static_shape_kernel_sym_index=number(0, 0),
            _super_kernel_optimize=flag(),
            _super_kernel_optimize_options=of_type(dict),
            _super_kernel_debug_options=of_type(dict),
        ),
    )


def _ge() -> Group:
    return Group(
        enable_single_stream=flag(),
        oo_level=choice("O3", "O1", "O3"),
        oo_constant_folding=choice(None, True, False),
        oo_dead_code_elimination=choice(None, True, False),
        export_compile_stat=choice("2", "0", "1", "2"),
        aicore_num=anything(),
        optimization_switch=anything(),
    )
