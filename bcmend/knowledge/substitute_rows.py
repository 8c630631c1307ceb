"""The table of calls that Dynamo cannot trace and for which something equal can be traced.

Each row names a callable, what stands in for a call of it, under which condition that is equal to
the call, the domain over which the two are compared, and a public program that asked for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Final

from bcmend.knowledge import item_groups
from bcmend.knowledge.domains import (
    Domain,
    arrays,
    constants,
    given,
    made,
    made_tensors,
    read,
    tensors,
)
from bcmend.knowledge.domains import unchecked_domain as domain


@dataclass(frozen=True, slots=True)
class Substitute:
    """What stands in for a call.

    Attributes:
        answer: a key of ``bcmend.tracing.substitutes.dispatch.ANSWERS``.
        becomes: what the call becomes, in words.
        condition: when that is equal to the call; elsewhere Dynamo traces the call itself.
        domain: with which arguments that is compared with eager execution.
        seen_in: a public program that makes such a call in what people compile or may.
        replacement: what is traced in place of the call, for rows of the user and Python in place
            of C.
        parts: the code of a replacement of bcmend's own.
    """

    name: str
    answer: str
    becomes: str = ""
    condition: str = ""
    domain: Domain | None = None
    seen_in: str = ""
    replacement: object = None
    parts: tuple[CodeType, ...] = ()


def _rows(
    names: str, answer: str, becomes: str, condition: str, domain: Domain, seen_in: str
) -> list[Substitute]:
    return [Substitute(name, answer, becomes, condition, domain, seen_in) for name in names.split()]


_SIZES: Final = constants("None", "3", "(2, 1)", "0")

#: Names of draws, and their domains.
_DRAWS: Final = {
    "random.random": domain("target()"),
    "random.uniform random.triangular random.gauss random.normalvariate random.lognormvariate"
    " random.gammavariate random.betavariate random.weibullvariate random.vonmisesvariate": domain(
        "target(a, b)", a=constants("0.5", "1.0", "2"), b=constants("1.5", "3.0", "2")
    ),
    "random.expovariate random.paretovariate": domain("target(a)", a=constants("0.5", "1.0", "2")),
    "random.randint": domain(
        "target(a, b)", a=constants("0", "-3", "2"), b=constants("2", "5", "10**6")
    ),
    "random.randrange": domain("target(a)", a=constants("1", "5", "10**6")),
    "random.getrandbits": domain("target(a)", a=constants("0", "5", "31")),
    "random.choice": domain("target(a)", a=constants("[1, 2]", "(0.5, 1.5)", "range(4)", "[True]")),
    "random.choices": domain(
        "target(a, k=k)", a=constants("[1, 2]", "(0.5, 1.5)", "range(4)"), k=constants("1", "3")
    ),
    "random.sample": domain(
        "target(a, k)", a=constants("[1, 2]", "(0.5, 1.5)", "range(4)"), k=constants("1", "2")
    ),
}
_DRAWS_OF_NUMPY: Final = {
    "rand randn": domain("target(a)", a=constants("1", "3", "0")),
    "random random_sample ranf sample standard_normal": domain("target(a)", a=_SIZES),
    "uniform normal beta gamma laplace lognormal": domain(
        "target(a, b, size)", a=constants("0.5", "1.0"), b=constants("1.5", "2"), size=_SIZES
    ),
    "exponential poisson": domain("target(a, size)", a=constants("0.5", "1.0"), size=_SIZES),
    "binomial": domain(
        "target(n, a, size)", n=constants("1", "5"), a=constants("0.5", "1.0"), size=_SIZES
    ),
    "randint": domain(
        "target(a, b, size)", a=constants("0", "-1"), b=constants("1", "5"), size=_SIZES
    ),
    "permutation": domain("target(n)", n=constants("1", "5", "0")),
    "choice": domain("target(n, size)", n=constants("1", "5"), size=_SIZES),
}

#: A layer that is given a packed sequence.
_PACKED: Final = domain(
    "ran(t, n)",
    """
layer = torch.nn.GRU(2, 3, batch_first=True)
for each in layer.parameters():
    torch.nn.init.constant_(each, 0.25)


def ran(t, n):
    rnn = torch.nn.utils.rnn
    packed = rnn.pack_padded_sequence(t, n, batch_first=True, enforce_sorted=False)
    return rnn.pad_packed_sequence(layer(packed)[0], batch_first=True)
""",
    is_whole=True,
    t=given("torch.ones(3, 4, 2)", "torch.full((3, 4, 2), nan)"),
    n=given("torch.tensor([4, 1, 2])", "torch.tensor([1, 1, 1])"),
)

TABLE: Final[Mapping[str, Substitute]] = {
    row.name: row
    for row in (
        *_rows(
            "torch.autograd.Variable torch.autograd.variable.Variable",
            "variable",
            "`t.detach()`, which it is; with `requires_grad=True`, `requires_grad_()` behind it",
            "`t` is a plain tensor, and `volatile` is not set (which warns)",
            domain("target(t, requires_grad=g)", t=tensors(), g=constants("False", "True")),
            "amdegroot/ssd.pytorch, layers/modules/multibox_loss.py: MultiBoxLoss.forward",
        ),
        *_rows(
            "torch.autograd.grad",
            "gradients",
            "the same, as with `torch._dynamo.config.trace_autograd_ops`, but for that what it goes"
            " through may be gone through again",
            "the call is captured in one graph, and nothing between is computed outside of it",
            domain(
                "target((x * y).sum(), y)",
                y=given("torch.ones(6, requires_grad=True)", "torch.zeros(6, requires_grad=True)"),
            ),
            "ACEsuit/mace, mace/modules/utils.py: compute_forces",
        ),
        *_rows(
            "torch.Tensor.backward torch.autograd.backward",
            "backward",
            "`torch.autograd.grad` for all leaves that it reaches. What that gives is added to"
            " their `.grad`",
            "as for `torch.autograd.grad`. Without `create_graph`, of strided leaves on which there"
            " are no hooks. No branch is around it, and no argument that it reaches was computed"
            " from others that require gradients",
            domain(
                "back((x * y).sum(), y)",
                """
def back(loss, y):
    if target is torch.Tensor.backward:
        loss.backward()
    else:
        target(loss)
    return y.grad
""",
                y=given("torch.ones(6, requires_grad=True)", "torch.zeros(6, requires_grad=True)"),
            ),
            "DequanWang/tent, tent.py: optim_model",
        ),
        *_rows(
            "torch._assert",
            "assertion",
            "its exception where the condition is known not to hold",
            "in mended code, where a handler or a branch is around it",
            domain("target(c, 'wanted')", c=constants("True", "False")),
            "pytorch/vision, torchvision/models/detection/fcos.py: FCOS.forward",
        ),
        *_rows(
            "torch._check torch._check_with torch._check_index torch._check_value"
            " torch._check_type torch._check_not_implemented",
            "check",
            "nothing where the condition is known to hold, its exception where it is known not to."
            " A side exit where the data decide: the call is made in plain Python",
            "any message. Where the graph cannot be thrown away, Dynamo's own form stays",
            domain(
                "target(*([ValueError] if target is torch._check_with else []), n > 0, said)",
                "def said():\n    return 'not so'",
                n=read("1", "0", "-3"),
            ),
            "transformers 5.4, utils/import_utils.py: torch_compilable_check",
        ),
        *_rows(
            "torch._check_tensor_all torch._check_tensor_all_with",
            "check_all",
            "a side exit under `not cond.all()`",
            "the condition is a tensor of booleans",
            domain(
                "target(*([ValueError] if target is torch._check_tensor_all_with else []), t > 0)",
                t=tensors("float32 int64"),
            ),
            "transformers 5.4, models/rt_detr_v2/modeling_rt_detr_v2.py, by torch_compilable_check",
        ),
        *_rows(
            "torch._is_all_true",
            "valid",
            "true, and a side exit where it does not hold",
            "a distribution of torch's validates its parameters or a sample",
            domain(
                "torch.distributions.Normal(x, scale, validate_args=True).mean * 2",
                scale=given("torch.tensor(1.0)", "torch.tensor(-1.0)", "torch.tensor(nan)"),
            ),
            "torch 2.13, distributions/distribution.py: Distribution.__init__",
        ),
        *_rows(
            "torch.distributions.constraints.is_dependent",
            "dependent constraint",
            "its answer",
            "the constraint is known while the call is traced",
            domain(
                "torch.distributions.Uniform(x, high, validate_args=True).mean * 2",
                high=given("torch.full((6,), 9.0)", "torch.zeros(6)"),
            ),
            "torch 2.13, distributions/distribution.py: Distribution.__init__",
        ),
        *_rows(
            "inspect.signature",
            "signature",
            "what it gives for the function, made once for all calls",
            "it is asked of a method of an object that the call has made, as"
            " `Module.__setattr__` does where a buffer is stored",
            domain(
                "Layer().shift",
                """
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Buffer(torch.ones(2))

    def register_buffer(self, name, tensor, persistent=True):
        super().register_buffer(name, tensor, persistent)
""",
            ),
            "torch 2.13, nn/modules/module.py: Module.__setattr__",
        ),
        *_rows(
            "torch.Tensor.requires_grad_",
            "requires_grad",
            "nothing where the tensor requires gradients already, or does not and is not to. Else"
            " a new leaf in the graph, or behind the graph for a tensor that only leaves it. For an"
            " argument it is one in front of the graph, whose flag may be set back behind it",
            "for a new leaf: nothing leaves the graph that would not require gradients without it,"
            " but the tensor itself, of which nothing is computed. For an argument: it was"
            " not changed before, and views taken before are not used or asked behind. It is not"
            " used behind where it is set back, and no branch is around it",
            domain("t.requires_grad_(g)", t=made_tensors(), g=constants("True", "False")),
            "ACEsuit/mace, mace/modules/utils.py: get_symmetric_displacement",
        ),
        *_rows(
            "torch.nn.Parameter torch.nn.parameter.Parameter",
            "parameter",
            "a parameter that is made before the graph runs, afresh at each call, and filled inside"
            " the graph at its place",
            "the tensor is computed in the call, has a known size and memory of its own, and is not"
            " used behind that place. Whether the call is made does not depend on data",
            domain(
                "target(t)",
                t=made("torch.tensor([nan, 2.0, -0.0])", "torch.tensor([inf, 1.0, 0.0])"),
            ),
            "salesforce/awd-lstm-lm, weight_drop.py: WeightDrop._setweights",
        ),
        *itertools.chain.from_iterable(
            _rows(
                names,
                "draw",
                "a number, or a list of them, drawn before the graph runs, afresh at each call",
                "the arguments are constants, or numbers that are computed in front of the graph."
                " These are computed of earlier draws and of what the call is given. Numbers of one"
                " type are chosen from. In an arm the condition can be computed in front of the"
                " graph",
                each,
                "transformers 4.52, models/musicgen/modeling_musicgen.py: MusicgenDecoder.forward",
            )
            for names, each in _DRAWS.items()
        ),
        *itertools.chain.from_iterable(
            _rows(
                " ".join(f"numpy.random.{name}" for name in names.split()),
                "draw",
                "a number or an array, drawn from numpy's generator before the graph runs, afresh"
                " at each call (stock Dynamo draws from torch's generator instead)",
                "the arguments are constants, or, of what gives a number, numbers that are computed"
                " in front of the graph. In an arm the condition can be computed in front of the"
                " graph",
                each,
                "transformers 4.52, models/wav2vec2/modeling_wav2vec2.py: _compute_mask_indices",
            )
            for names, each in _DRAWS_OF_NUMPY.items()
        ),
        *_rows(
            " ".join(
                f"time.{name}{unit}"
                for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time")
                for unit in ("", "_ns")
            ),
            "clock",
            "the same clock, read inside the graph at its place, afresh at each call",
            "whether the call is made does not depend on data",
            domain("0 <= target() - target() < 1"),
            "andy-yun/pytorch-0.4-yolov3, yolo_layer.py: YoloLayer.forward",
        ),
        *_rows(
            "math.isnan math.isinf math.isfinite",
            "float test",
            "`torch.isnan` and so on of the tensor that the number is taken from",
            "the number comes out of a tensor. Of others Dynamo knows it by itself",
            domain("target(n)", n=read("2.5", "nan", "-0.0", "inf", "-inf")),
            "andy-yun/pytorch-0.4-yolov3, yolo_layer.py: YoloLayer.forward",
        ),
        *_rows(
            "torch.nn.functional.batch_norm",
            "batch norm",
            "the same with copies of the running statistics, and an operator that gives the new"
            " ones, of which the momentum is a tensor",
            "the momentum is a number that is taken from a tensor, in training: a layer with"
            " `momentum=None`",
            domain(
                "target(x.view(2, 3), mean, torch.ones(3), training=True, momentum=m)",
                mean=given("torch.zeros(3)", "torch.tensor([1.0, inf, nan])"),
                m=read("0.5", "0.1", "1.0"),
            ),
            "torch 2.13, nn/modules/batchnorm.py: _BatchNorm.forward",
        ),
        Substitute(
            "itertools.groupby",
            "call",
            "the same in Python, which Dynamo traces (stock Dynamo takes keys that are constants,"
            " and hands each run out as a list of its own)",
            "Dynamo can iterate over what is given",
            domain(
                "[(k, list(v)) for k, v in target(items, key)]",
                items=constants("[1, 1, 2, 1]", "'aab'", "[]", "[0, False, -0.0]"),
                key=constants("None", "str", "lambda each: each == 1"),
            ),
            "speechbrain/speechbrain, speechbrain/decoders/ctc.py: filter_ctc_output",
            replacement=item_groups.ItemGroups,
            parts=item_groups.CODE,
        ),
        *_rows(
            "torch.nn.functional.one_hot",
            "one hot",
            "a comparison with the numbers of all classes. What is none is left to plain Python",
            "no number of classes is given, or one that is taken out of a tensor",
            domain(
                "target(t)",
                t=given("torch.tensor([1, 0, 2])", "torch.tensor([0])", "torch.tensor([[3, 0]])")
                | given("torch.tensor([-1, 2])", "torch.tensor(1)", "torch.tensor([5, 1])"),
            ),
            "pyg-team/pytorch_geometric, nn/models/label_prop.py: LabelPropagation.forward",
        ),
        *_rows(
            "torch.repeat_interleave torch.Tensor.repeat_interleave",
            "repeated rows",
            "`index_select` by an index that is made once for all calls with the same counts",
            "integers count as many rows as there are, and no `output_size` is given",
            domain(
                "repeated(t, n)",
                """
def repeated(t, n):
    if target is torch.Tensor.repeat_interleave:
        return t.repeat_interleave(n, 0)
    return target(t, n, 0)
""",
                t=given("torch.tensor([0.5, nan, -1.0])", "torch.tensor([[2, 1], [0, 3], [4, 5]])"),
                n=given(
                    "torch.tensor([1, 0, 2])", "torch.tensor([2, 2, 2])", "torch.tensor([0, 0, 0])"
                ),
            ),
            "jiaor17/DiffCSP, diffcsp/pl_modules/diffusion.py: CSPDiffusion.forward",
        ),
        *_rows(
            "torch.Tensor.random_",
            "random integers",
            "`tensor.copy_(torch.randint(...))`, which draws the same numbers",
            "bounds are given, and the tensor is contiguous and requires no gradient",
            domain(
                "t.random_(low, high)",
                t=made("torch.zeros(3)", "torch.zeros(2, 3)")
                | made("torch.zeros(4, dtype=torch.int64)", "torch.zeros((), dtype=torch.int64)"),
                low=constants("0", "-3"),
                high=constants("5", "2**10"),
            ),
            "HobbitLong/RepDistiller, crd/memory.py: AliasMethod.draw",
        ),
        *_rows(
            "random.seed numpy.random.seed torch.manual_seed torch.random.manual_seed",
            "seed",
            "the same call before the graph runs, in its order among the draws of Python and numpy",
            "the seed is a constant. For torch: nothing has drawn from its generator in the call,"
            " and the generator that is returned is not used",
            domain(
                "seeded(n)",
                """
def seeded(n):
    target(n)
    return random.random(), torch.rand(2)
""",
                n=constants("1", "2**31"),
            ),
            "transformers 4.52, models/reformer: LSHSelfAttention._hash_vectors",
        ),
        *_rows(
            "torch.tensor",
            "tensor of array",
            "`.to(...)` of the tensor that the graph has for the array, without the warning that"
            " torch gives when a tensor is copied so. It is `torch.arange` for a range up to a"
            " size",
            "a numpy array that the graph has as a tensor, or a range up to a size that the data"
            " decide and `torch.int64`, and constants for `dtype` and `device`",
            domain(
                "target(data, dtype=dtype)",
                data=arrays("float64 float32 int64 bool"),
                dtype=constants("None", "torch.float32", "torch.int64", "torch.float16"),
            ),
            "transformers 4.52, models/wav2vec2/modeling_wav2vec2.py: _mask_hidden_states",
        ),
        *_rows(
            "torch.as_tensor",
            "tensor of items",
            "`torch.stack` of the tensors in a list, of one number each; `torch.tensor` of numbers",
            "integers, in lists of equal lengths, and tensors on the CPU that require no gradient."
            " They are of one type, which is that asked for, or integers that are asked for as"
            " `int64`. Or numbers alone, some of them out of tensors",
            domain(
                "target([n, m, 3], dtype=dtype)",
                n=read("1", "-5", "2**63 - 1"),
                m=given("3", "4"),
                dtype=constants("None", "torch.int64"),
            ),
            "transformers 4.52, models/tapas/modeling_tapas.py: _segment_reduce",
        ),
        *_rows(
            "torch.Tensor",
            "default tensor of array",
            "`.to(...)` of the tensor that the graph has for the array, which Dynamo leaves at the"
            " type of the array",
            "a numpy array that the graph has as a tensor, and the processor as default device",
            domain("target(data)", data=arrays("float64 float32 int64 bool uint8")),
            "qiuqiangkong/audioset_tagging_cnn, pytorch/pytorch_utils.py: move_data_to_device",
        ),
        *_rows(
            "torch.LongTensor torch.IntTensor torch.FloatTensor torch.DoubleTensor",
            "tensor of numbers",
            "`torch.tensor` of the numbers, with that type, on the CPU",
            "a list of integers, or for the last two of numbers, some of them out of tensors",
            domain(
                "target([n, 3, m])",
                n=read("2", "-7", "0"),
                m=constants("1", "-5"),
            ),
            "andy-yun/pytorch-0.4-yolov3, yolo_layer.py: YoloLayer.build_targets",
        ),
        *_rows(
            "torch.sparse_coo_tensor",
            "coordinates",
            "a note of its indices and values, of which `.to_dense()` makes a tensor in the graph",
            "three arguments, with values that are numbers and require no gradient, and a size."
            " Anything else that is done with it breaks the graph",
            domain(
                "target(i, v, (3, 3)).to_dense()",
                "torch.sparse_coo_tensor(torch.zeros(1, 1).long(), [1], (1,))  # the first warns",
                i=given("torch.tensor([[0, 1], [2, 0]])", "torch.tensor([[0, 0], [2, 2]])"),
                v=given("torch.tensor([1.0, 2.0])", "torch.tensor([nan, -0.0])"),
            ),
            "Lightning-AI/torchmetrics, clustering/utils.py: calculate_contingency_matrix",
        ),
        *_rows(
            "scipy.optimize.linear_sum_assignment",
            "assignment",
            "an operator that makes the same call",
            "costs are a tensor of the CPU's that requires no gradient, or an array that the graph"
            " has as a tensor",
            domain(
                "target(costs, maximize=high)",
                "import scipy.optimize",
                costs=given(
                    "torch.tensor([[4.0, 1.0], [2.0, 0.5], [3.0, 9.0]])", "torch.zeros(3, 2)"
                ),
                high=constants("False", "True"),
            ),
            "transformers 4.52, models/mask2former: Mask2FormerHungarianMatcher.forward",
        ),
        *_rows(
            "torch.nn.utils.rnn.pack_padded_sequence",
            "packed",
            "an operator that calls the same kernel, and is handed how many rows the result has",
            "one graph is asked for, and there is a clip",
            _PACKED,
            "espnet/espnet, espnet/nets/pytorch_backend/rnn/encoders.py: RNN.forward",
        ),
        *_rows(
            "torch.nn.utils.rnn.pad_packed_sequence",
            "unpacked",
            "an operator that makes the same call, and is handed how many steps the result has",
            "one graph is asked for",
            _PACKED,
            "espnet/espnet, espnet/nets/pytorch_backend/rnn/encoders.py: RNN.forward",
        ),
        *_rows(
            "torch.lstm torch.gru torch.rnn_tanh torch.rnn_relu",
            "recurrent layer",
            "an operator that makes the same call. Its backward makes it again",
            "one graph is asked for, and the layer is given a packed sequence, or gradients flow"
            " through it in an arm, without dropout between its layers in training",
            _PACKED,
            "espnet/espnet, espnet/nets/pytorch_backend/rnn/encoders.py: RNN.forward",
        ),
        *_rows(
            "copy.deepcopy",
            "deepcopy",
            "`t.clone()` of a tensor, in new lists, tuples and dictionaries",
            "each tensor is a plain one that requires no gradients and fills its memory, and no"
            " other tensor of that memory is copied with it",
            domain(
                "target([t, {'a': t + 1}, 3])",
                t=given("torch.tensor([nan, -0.0])", "torch.tensor([1.0, inf])"),
            ),
            "transformers 4.52, models/deprecated/deta: DetaLoss.forward",
        ),
        *_rows(
            "copy.copy",
            "copy",
            "`t.detach()` of a tensor, `.copy()` of a list or dictionary",
            "a plain tensor that requires no gradients; no subclass of `list` or `dict`",
            domain("target(t)", t=tensors("float32 int64 bool")),
            "transformers 4.52, generation/utils.py: GenerationMixin._assisted_decoding",
        ),
        *_rows(
            "torch.backends.cudnn.flags",
            "cudnn flags",
            "nothing: they matter to no operation of the block",
            "all tensors in the block lie in the memory of the CPU",
            domain(
                "without(x)",
                """
def without(x):
    with torch.backends.cudnn.flags(enabled=False):
        return x * 2
""",
            ),
            "transformers 4.52, models/wav2vec2/modeling_wav2vec2.py: Wav2Vec2ForCTC.forward",
        ),
        *_rows(
            "torch.set_grad_enabled.clone",
            "grad mode",
            "`torch.set_grad_enabled(...)` with the same mode: what the decorator"
            " `@torch.set_grad_enabled(...)` enters in each call",
            "the call has something that bcmend mends, in this function or in another one",
            domain(
                "made(x)",
                """
@torch.set_grad_enabled(True)
def made(x):
    return x * 2
""",
            ),
            "mathLab/PINA, pina/solver: PINNInterface.validation_step",
        ),
        *_rows(
            "threading.Lock.__enter__",
            "lock",
            "nothing: `with lock:` as CPython does without it since 3.12",
            "the lock is that of `functools.cached_property`",
            domain(
                "Held(x).twice",
                """
import functools


class Held:
    def __init__(self, x):
        self.x = x

    @functools.cached_property
    def twice(self):
        return self.x * 2
""",
            ),
            "transformers 4.52, models/chameleon/modeling_chameleon.py: img2bpe_mapping_tensor",
        ),
    )
}
"""Every row of bcmend's own, by name."""
