"""Graphs whose big tensors lie in the constants section, and in nothing else."""

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir import tensor
import pytest

from anycann.om.constants import ConstantPool
from anycann.om.weights import LOCATION, Stored, load_graph, store_graph
from anycann.support.arrangement import Arrangement
from anycann.support.errors import ModelError

BIG = np.arange(1000, dtype=np.float32).reshape(10, 100)
SMALL = np.arange(4, dtype=np.int64)


def model_of(**initialisers: ir.TensorProtocol) -> ir.Model:
    """y = x + a Constant of BIG, with these initialisers, and a subgraph that has one of its own."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([10, 100]))
    constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor(BIG * 2, name="in_node"))], name="constant")
    inner_value = ir.Value(name="inner", const_value=tensor(BIG + 1, name="inner"))
    inner_node = ir.Node("", "Identity", [inner_value])
    inner = ir.Graph([], inner_node.outputs, nodes=[inner_node], initializers=[inner_value], name="body")
    condition = ir.Value(name="c", const_value=tensor(np.array(True), name="c"))
    choice = ir.Node("", "If", [condition], [ir.AttrGraph("then_branch", inner)], name="choice")
    add = ir.Node("", "Add", [x, constant.outputs[0]], name="add")
    values = [ir.Value(name=name, const_value=value) for name, value in initialisers.items()]
    graph = ir.Graph([x], add.outputs, nodes=[constant, choice, add], initializers=[condition, *values], opset_imports={"": 26}, name="g")
    return ir.Model(graph, ir_version=13)


def there_and_back(model: ir.Model) -> tuple[ir.Model, bytes, np.ndarray]:
    pool = ConstantPool()
    data = store_graph(model, pool)
    constants = pool.finish()
    return load_graph(data, constants, "file, section graph"), data, constants


def test_big_tensors_become_views_of_the_constants_and_keep_their_values():
    loaded, data, constants = there_and_back(model_of(w=tensor(BIG, name="w"), s=tensor(SMALL, name="s")))
    assert len(data) < 2000
    weights = loaded.graph.initializers["w"].const_value.numpy()
    np.testing.assert_array_equal(weights, BIG)
    assert np.shares_memory(weights, constants)
    np.testing.assert_array_equal(loaded.graph.initializers["s"].const_value.numpy(), SMALL)
    np.testing.assert_array_equal(loaded.graph.node(0).attributes["value"].as_tensor().numpy(), BIG * 2)
    np.testing.assert_array_equal(
        loaded.graph.node(1).attributes["then_branch"].as_graph().initializers["inner"].const_value.numpy(), BIG + 1
    )


def test_the_model_that_is_stored_is_not_changed():
    model = model_of(w=tensor(BIG, name="w"))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    store_graph(model, ConstantPool())
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def packed_model(length: int | None = None, location: str = "8,10,16/1,0,2/10,128/10,100", **change: object) -> tuple[bytes, np.ndarray]:
    """A graph section whose weight `w` lies in panels of 16 columns, and the constants; `change`s go into the reference."""
    pool = ConstantPool()
    padded = np.pad(BIG, ((0, 0), (0, 28)))
    buffer = pool.add(padded.reshape(10, 8, 16).transpose(1, 0, 2))
    big = tensor(BIG, name="w")
    data = store_graph(model_of(w=big), pool, {id(big): Stored(buffer, Arrangement.parse("8,10,16/1,0,2/10,128/10,100"))})
    proto = onnx.ModelProto.FromString(data)
    (weight,) = (w for w in proto.graph.initializer if w.name == "w")
    for entry in weight.external_data:
        entry.value = {"location": f"{LOCATION}/{location}", "length": str(length or entry.value)}.get(entry.key, entry.value)
    for name, value in change.items():
        setattr(weight, name, value)
    return proto.SerializeToString(), pool.finish()


def test_a_weight_that_is_packed_without_loss_is_there_once():
    data, constants = packed_model()
    raw = [BIG * 2, BIG + 1]
    assert constants.nbytes == sum(a.nbytes + 64 + -a.nbytes % 64 for a in raw) + 8 * 10 * 16 * 4 + 64
    weight = load_graph(data, constants, "file, section graph").graph.initializers["w"].const_value
    assert (weight.name, weight.dtype, list(weight.shape)) == ("w", ir.DataType.FLOAT, [10, 100])
    np.testing.assert_array_equal(weight.numpy(), BIG)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"location": "8,10,16/1,0,2/10,128/10,99"}, "as many elements as it has"),
        ({"location": "8,10,16/1,1,2/10,128/10,100"}, "no order of 3 axes"),
        ({"location": "anything"}, "four lists of numbers"),
        ({"location": "80,100,16/1,0,2/1000,128/10,100"}, "512000 bytes within"),
        ({"length": 5116}, "5120 bytes within"),
        ({"data_type": onnx.TensorProto.STRING}, "whole bytes an element"),
        ({"data_type": onnx.TensorProto.INT4}, "whole bytes an element"),
        ({"data_type": onnx.TensorProto.DOUBLE}, "10240 bytes within"),
    ],
)
def test_a_reference_to_a_packed_weight_must_be_right(change, reason):
    data, constants = packed_model(**change)
    with pytest.raises(ModelError, match=rf"^file, section graph: tensor 'w', .*{reason}"):
        load_graph(data, constants, "file, section graph")


def test_weights_shared_by_several_graphs_are_stored_once():
    pool = ConstantPool()
    first = store_graph(model_of(w=tensor(BIG, name="w")), pool)
    nbytes = pool.nbytes
    assert store_graph(model_of(w=tensor(BIG, name="w")), pool) == first
    assert pool.nbytes == nbytes


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float16, np.uint64, np.bool_, np.complex64])
def test_every_element_type_is_kept(dtype):
    weights = (np.arange(2100) % 3).astype(dtype).reshape(3, 700)
    loaded, _, _ = there_and_back(model_of(w=tensor(weights, name="w")))
    kept = loaded.graph.initializers["w"].const_value.numpy()
    assert kept.dtype == dtype
    np.testing.assert_array_equal(kept.view(np.uint8), weights.view(np.uint8))


@pytest.mark.parametrize("dtype", [ir.DataType.INT4, ir.DataType.UINT4])
def test_types_of_less_than_a_byte_stay_packed(dtype):
    weights = (np.arange(3001) % 8).astype(dtype.numpy())
    loaded, _, constants = there_and_back(model_of(w=ir.Tensor(weights, dtype, name="w")))
    np.testing.assert_array_equal(loaded.graph.initializers["w"].const_value.numpy().astype(np.int8), np.arange(3001) % 8)
    assert constants.nbytes < 1501 + 8000 + 4 * 128


def test_text_and_empty_tensors_stay_in_the_graph():
    words = ir.StringTensor(np.array([b"word" * 20] * 50, dtype=object), name="t")
    loaded, _, _ = there_and_back(model_of(t=words, e=tensor(np.empty((0, 5), np.float32), name="e")))
    assert loaded.graph.initializers["t"].const_value.numpy().tolist() == [b"word" * 20] * 50
    assert loaded.graph.initializers["e"].const_value.numpy().shape == (0, 5)


def hostile(
    location: str = LOCATION, offset: str = "0", length: str = "4000", dims: tuple[int, ...] = (10, 100), where: str = "w"
) -> bytes:
    proto = onnx.ModelProto.FromString(there_and_back(model_of(w=tensor(BIG, name="w")))[1])
    node_tensor = proto.graph.node[0].attribute[0].t
    inner = proto.graph.node[1].attribute[0].g.initializer[0]
    victim = {"w": proto.graph.initializer[-1], "node": node_tensor, "inner": inner}[where]
    del victim.external_data[:], victim.dims[:]
    victim.dims.extend(dims)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        victim.external_data.add(key=key, value=value)
    return proto.SerializeToString()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"location": "/etc/passwd"}, r"tensor 'w', float\[10, 100\] lies in '/etc/passwd'; accepted: @constants"),
        ({"location": "../weights", "where": "node"}, "lies in '../weights'"),
        ({"location": "weights.bin", "where": "inner"}, "lies in 'weights.bin'"),
        ({"location": ""}, "lies in ''"),
        ({"offset": "100000"}, "lies at 100000 with 4000 bytes; accepted: 4000 bytes within"),
        ({"offset": "-64"}, "lies at -64|no ONNX model"),
        ({"offset": str(2**80)}, "lies at|no ONNX model"),
        ({"offset": "zero"}, "no ONNX model"),
        ({"length": "4"}, "with 4 bytes; accepted: 4000"),
        ({"dims": (1 << 40, 1 << 40)}, "accepted: 4835703278458516698824704 bytes"),
        ({"dims": (-10, -100)}, "accepted|no ONNX model"),
    ],
)
def test_a_tensor_that_refers_to_anything_else_is_refused(changes, message):
    constants = there_and_back(model_of(w=tensor(BIG, name="w")))[2]
    with pytest.raises(ModelError, match=f"^file, section graph.*{message}"):
        load_graph(hostile(**changes), constants, "file, section graph")


@pytest.mark.parametrize("data", [b"\xff" * 40, b"graph", b"\x08\x0a\x3a\x03\x0a\x01"])
def test_bytes_that_are_no_model_are_refused(data):
    with pytest.raises(ModelError, match=r"^file, section graph is no ONNX model"):
        load_graph(data, np.empty(0, np.uint8), "file, section graph")
