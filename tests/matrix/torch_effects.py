"""Effects on torch itself and on tensors: settings, generators, changes in place, views, memory.

In the order of torch's own index: `torch`, `torch.Tensor`, `torch.backends`, `torch.random`.
"""

from __future__ import annotations

from typing import Final

from tests.matrix.effect import Effect

SETTINGS: Final = (
    Effect("grad mode: set", "torch.set_grad_enabled(False)", "torch.is_grad_enabled()"),
    Effect("grad mode: a block", "with torch.no_grad():\n    s.h = y * 2", "s.h",
           state="s.h = s.t", thing="s.h"),
    Effect("grad mode: entered by hand", "s.c = torch.no_grad()\ns.c.__enter__()",
           "torch.is_grad_enabled()"),
    Effect("grad mode: inference mode", "with torch.inference_mode():\n    s.h = s.t * 2",
           "s.h.is_inference()", state="s.h = s.t", thing="s.h"),
    Effect("default: dtype", "torch.set_default_dtype(torch.float64)",
           "torch.get_default_dtype()"),
    Effect("default: dtype, read at once",
           "torch.set_default_dtype(torch.float64)\ns.h = torch.ones(2)", "s.h",
           state="s.h = s.t"),
    Effect("default: device", "torch.set_default_device('meta')",
           "str(torch.get_default_device())"),
    Effect("determinism: algorithms", "torch.use_deterministic_algorithms(True)",
           "torch.are_deterministic_algorithms_enabled()"),
    Effect("determinism: memory",
           "torch.utils.deterministic.fill_uninitialized_memory = False",
           "torch.utils.deterministic.fill_uninitialized_memory"),
    Effect("precision: matmul", "torch.set_float32_matmul_precision('medium')",
           "torch.get_float32_matmul_precision()"),
    Effect("precision: threads", "torch.set_num_threads(2)", "torch.get_num_threads()"),
    Effect("checking: anomaly mode", "torch.autograd.set_detect_anomaly(True)",
           "torch.is_anomaly_enabled()"),
    Effect("autocast: switched on", "torch.set_autocast_enabled('cpu', True)",
           "torch.is_autocast_enabled('cpu')"),
    Effect("autocast: dtype", "torch.set_autocast_dtype('cpu', torch.float16)",
           "torch.get_autocast_dtype('cpu')"),
    Effect("autocast: a block", "with torch.autocast('cpu', dtype=torch.bfloat16):\n"
           "    s.h = y[:1, None] @ y[None, :1]", "s.h.dtype", state="s.h = s.t", thing="s.h"),
    Effect("precision: denormals", "torch.set_flush_denormal(True)",
           "bool((s.small * 0.5).item() == 0)", state="s.small = torch.tensor([2e-38])"),
    Effect("display: print options", "torch.set_printoptions(precision=2)", "str(s.p)",
           state="s.p = torch.tensor([0.123456])"),
    Effect("checking: warn always", "torch.set_warn_always(True)",
           "torch.is_warn_always_enabled()"),
    Effect("backends: cudnn", "torch.backends.cudnn.benchmark = True",
           "torch.backends.cudnn.benchmark"),
    Effect("backends: mkldnn", "torch.backends.mkldnn.deterministic = True",
           "torch.backends.mkldnn.deterministic"),
    Effect("backends: attention", "torch.backends.cuda.enable_math_sdp(False)",
           "torch.backends.cuda.math_sdp_enabled()"),
    Effect("backends: fast path", "torch.backends.mha.set_fastpath_enabled(False)",
           "torch.backends.mha.get_fastpath_enabled()"),
    Effect("checking: distributions",
           "torch.distributions.Distribution.set_default_validate_args(False)",
           "torch.distributions.Distribution._validate_args",
           state="torch.distributions.Distribution.set_default_validate_args(True)"),
    Effect("checking: sparse invariants", "torch.sparse.check_sparse_tensor_invariants.enable()",
           "torch.sparse.check_sparse_tensor_invariants.is_enabled()"),
    Effect("display: hub directory", "torch.hub.set_dir('/nowhere')", "torch.hub.get_dir()"),
    Effect("mode: saved tensors", "with torch.autograd.graph.saved_tensors_hooks(pack, unpack):\n"
           "    y = y * y", "list(PACKED)", training=True, setup="""
PACKED = []
def pack(t):
    PACKED.append(1)
    return t
def unpack(t):
    return t
"""),
    Effect("mode: functions", "with Mode():\n    y = torch.add(y, 1)", "list(CALLED)", setup="""
CALLED = []
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        CALLED.append(1)
        return func(*args, **(kwargs or {}))
"""),
    Effect("mode: profiler", "with torch.profiler.record_function('r'):\n    s.a += 1", "s.a",
           state="s.a = 0"),
    Effect("mode: vmap", "s.h = torch.vmap(lambda v: v * 2)(y)", "s.h", state="s.h = s.t",
           thing="s.h"),
)  # fmt: skip


def _drawn(
    name: str, act: str, state: str = "s.a = s.t", *, kind: str = "random numbers"
) -> Effect:
    return Effect(f"{kind}: {name}", act, "s.a", state=state, thing="s.a")


RANDOM: Final = (
    _drawn("rand", "s.a = torch.rand(2)"),
    _drawn("randint", "s.a = torch.randint(0, 99, (2,))"),
    _drawn("randperm", "s.a = torch.randperm(9)"),
    _drawn("rand_like", "s.a = torch.rand_like(y)"),
    _drawn("bernoulli", "s.a = torch.bernoulli(torch.full((4,), 0.5))"),
    _drawn("multinomial", "s.a = torch.multinomial(torch.ones(9), 3)"),
    _drawn("normal_", "s.a.normal_()"),
    _drawn("dropout", "s.a = F.dropout(torch.ones(9), 0.5)"),
    _drawn("distribution", "s.a = torch.distributions.Normal(0., 1.).sample()"),
    _drawn("host number", "s.a = torch.rand(()).item()", "s.a = 0.0"),
    _drawn("manual_seed", "torch.manual_seed(7)\ns.a = torch.rand(1)", kind="generator state"),
    _drawn("saved and restored", "state = torch.get_rng_state()\ns.a = torch.rand(1)\n"
           "torch.set_rng_state(state)", kind="generator state"),
    _drawn("fork_rng", "with torch.random.fork_rng(devices=[]):\n    s.a = torch.rand(1)",
           kind="generator state"),
    _drawn("own generator", "s.a = torch.rand(2, generator=s.g)",
           "s.a = s.t\ns.g = torch.Generator()\ns.g.manual_seed(3)", kind="generator state"),
    Effect("generator state: own manual_seed", "s.g.manual_seed(9)", "s.g.initial_seed()",
           state="s.g = torch.Generator()\ns.g.manual_seed(3)", thing="s.g"),
)  # fmt: skip


def _in_place(name: str, act: str, look: str = "s.t", state: str = "") -> Effect:
    return Effect(
        f"in place, {name}" if ":" in name else f"in place: {name}", act, look, state=state
    )


TENSORS: Final = (
    _in_place("add_", "s.t.add_(1)"),
    _in_place("part: add_ of a result", "s.t[:2] += y.detach()[:2]"),
    _in_place("copy_", "s.t.copy_(torch.ones(4))"),
    _in_place("fill_", "s.t.fill_(3)"),
    _in_place("zero_", "s.t.zero_()", state="s.t = torch.ones(4)"),
    _in_place("part: store an item", "s.t[0] = 5"),
    _in_place("part: store a slice", "s.t[1:3] = y.detach()[:2]"),
    _in_place("part: store by a mask", "s.t[s.t < 1] = 4"),
    _in_place("part: store by an index", "s.t[torch.tensor([1, 2])] = 4."),
    _in_place("part: masked_fill_", "s.t.masked_fill_(s.t < 1, 2)"),
    _in_place("part: scatter_", "s.t.scatter_(0, torch.tensor([1]), 4.)"),
    _in_place("part: index_add_", "s.t.index_add_(0, torch.tensor([1]), torch.ones(1))"),
    _in_place("out=", "torch.add(s.t, 1, out=s.t)"),
    _in_place("foreach", "torch._foreach_add_([s.t], 1)"),
    _in_place("augmented", "s.t += 1"),
    _in_place("alias: detach().add_", "s.t.detach().add_(1)"),
    _in_place("metadata: data", "s.t.data = torch.ones(3)"),
    _in_place("alias: data.add_", "s.w.data.add_(1)", "s.w.data"),
    _in_place("alias: through a view", "s.v.mul_(0).add_(2)", state="s.v = s.t[1:]"),
    _in_place("alias: through numpy", "s.t.numpy()[0] = 4"),
    _in_place("metadata: resize_", "s.t.resize_(6).fill_(1)", "tuple(s.t.shape)"),
    _in_place("metadata: set_", "s.t.set_(torch.ones(2))"),
    _in_place("metadata: unsqueeze_", "s.t.unsqueeze_(0)", "s.t.dim()"),
    _in_place("metadata: transpose_", "s.u.t_()", "s.u.stride()", "s.u = torch.zeros(2, 3)"),
    _in_place("metadata: requires_grad_", "s.t.requires_grad_()", "s.t.requires_grad"),
    _in_place("alias: the argument", "x.detach().mul_(3)", "None"),
    _in_place("alias: the running result", "y.add_(7)", "None"),
    _in_place("metadata: squeeze_", "s.u.squeeze_(0)", "s.u.dim()", "s.u = torch.zeros(1, 3)"),
    _in_place("metadata: swap", "torch.utils.swap_tensors(s.t, s.u)", state="s.u = torch.ones(4)"),
    _in_place("alias: storage", "s.t.untyped_storage().fill_(0)", state="s.t = torch.ones(4)"),
    Effect("view: stored", "s.v = s.t[1:]", "s.v", state="s.v = s.t[:1]", thing="s.v"),
    Effect("view: of the result", "s.v = y.view(-1)", "s.v", state="s.v = s.t", thing="s.v"),
    Effect("view: of the argument", "s.v = x.detach()", "s.v", state="s.v = s.t", thing="s.v"),
    Effect("view: becomes the result", "y = y.flip(0).view(-1)", "None"),
    Effect("view: expanded", "s.v = s.w.detach().expand(3)", "s.v.stride()", state="s.v = s.t",
           thing="s.v"),
    Effect("view: as_strided", "s.v = s.t.as_strided((2,), (2,))", "s.v.stride()",
           state="s.v = s.t", thing="s.v"),
    Effect("view: conjugate", "s.v = s.z.conj()", "s.v.is_conj()",
           state="s.z = torch.ones(2, dtype=torch.complex64)\ns.v = s.z", thing="s.v"),
    Effect("view: two of one memory", "s.a = y * 2\ns.b = s.a[1:]", "(s.a, s.b)",
           state="s.a = s.t\ns.b = s.t", thing="s.b"),
    Effect("tensor: the argument becomes the result", "y = x", "None"),
    Effect("tensor: attribute", "s.t.tag = 3", "getattr(s.t, 'tag', None)"),
    Effect("tensor: dtype of an attribute", "s.h = s.h.double()", "s.h.dtype",
           state="s.h = torch.zeros(2)", thing="s.h"),
    Effect("tensor: shape of an attribute", "s.h = torch.cat([s.h, s.h[:1]])", "len(s.h)",
           state="s.h = torch.zeros(2)", thing="s.h"),
    Effect("tensor: number of its data", "s.a = y.numel() + int(y.detach().sum().item() > -99)",
           "s.a", state="s.a = 0"),
    Effect("tensor: nonzero", "s.h = y.detach().nonzero()", "s.h", state="s.h = s.t"),
    Effect("tensor: tolist", "s.l.extend(y.detach().tolist())", "list(s.l)", state="s.l = []"),
    Effect("tensor: of a class of its own", "s.h = s.k * 2", "(type(s.h).__name__, list(CALLS))",
           state="s.k = torch.ones(2).as_subclass(Own)\ns.h = s.t", thing="s.h", setup="""
CALLS = []
class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        CALLS.append(1)
        return super().__torch_function__(func, types, args, kwargs or {})
"""),
    Effect("tensor: sparse", "s.h = (s.t + 1).to_sparse().to_dense()", "s.h", state="s.h = s.t",
           thing="s.h"),
)  # fmt: skip

EFFECTS: Final = (*SETTINGS, *RANDOM, *TENSORS)
