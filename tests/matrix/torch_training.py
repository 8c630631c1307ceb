"""Effects on gradients, hooks, modules and optimizers: `torch.autograd`, `nn`, `optim`."""

from __future__ import annotations

from typing import Final

from tests.matrix.effect import Effect


def _trained(name: str, act: str, look: str = "None", **more: str) -> Effect:
    return Effect(name, act, look, training=True, **more)  # type: ignore[arg-type]


_GRAD: Final = "None if s.w.grad is None else s.w.grad.clone()"

GRADIENTS: Final = (
    _trained("grad: to None", "s.w.grad = None", _GRAD, state="s.w.grad = torch.ones(1)"),
    _trained("grad: stored", "s.w.grad = torch.full((1,), 5.)", _GRAD),
    _trained("grad: zero_", "s.w.grad.zero_()", _GRAD, state="s.w.grad = torch.ones(1)"),
    _trained("grad: add_", "s.w.grad.add_(2)", _GRAD, state="s.w.grad = torch.ones(1)"),
    _trained("grad by a backward: autograd.grad",
             "s.a = torch.autograd.grad((s.w * 3).sum(), s.w)[0]", "s.a",
             state="s.a = s.t"),
    _trained("grad by a backward: backward", "(s.w * 3).sum().backward()", _GRAD),
    _trained("history: requires_grad", "s.w.requires_grad = False", "s.w.requires_grad"),
    _trained("history: retain_grad", "y.retain_grad()\ns.h = y", "s.h.retains_grad",
             state="s.h = s.t"),
    _trained("history: detached", "y = y.detach()", "None"),
    _trained("history: detach_", "y = y * 2\ny.detach_()", "None"),
    _trained("history: other parameter", "y = y * s.u", "None",
             state="s.u = nn.Parameter(torch.ones(1))"),
    _trained("function of its own: checkpoint",
             "y = torch.utils.checkpoint.checkpoint(torch.sin, y, use_reentrant=False)"),
    _trained("function of its own", "y = Doubling.apply(y)", "list(BACKWARDS)", setup="""
BACKWARDS = []
class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 2
        return x * 2
    @staticmethod
    def backward(ctx, g):
        BACKWARDS.append(ctx.factor)
        return g * ctx.factor
"""),
    _trained("function of its own: counts", "y = Counting.apply(y)", "list(FORWARDS)", setup="""
FORWARDS = []
class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        FORWARDS.append(1)
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        return g * 3
"""),
)  # fmt: skip

HOOKS: Final = (
    _trained("hook: on a result", "y = y * 2\ny.register_hook(lambda g, l=s.log: l.append(1))",
             "len(s.log)"),
    _trained("hook: that changes a gradient", "y.register_hook(lambda g: g * 3)"),
    _trained("hook: on a parameter", "s.w.register_hook(lambda g: g * 2)",
             "len(s.w._backward_hooks or ())"),
    _trained("hook: on the argument", "x.register_hook(lambda g: g * 2)"),
    _trained("hook: after a gradient is added",
             "s.w.register_post_accumulate_grad_hook(lambda p, l=s.log: l.append(1))",
             "len(s.log)"),
    _trained("hook: removed", "s.handle.remove()", "len(s.w._backward_hooks or ())",
             state="s.handle = s.w.register_hook(lambda g: g * 2)"),
    _trained("hook: on a node", "y = y * 2\ny.grad_fn.register_hook(lambda *g, l=s.log: "
             "l.append(1))", "len(s.log)"),
    Effect("hook of a module: forward of a module",
           "s.m.register_forward_hook(lambda m, i, o, l=s.log: l.append(1))\ny = s.m(y)",
           "(len(s.log), len(s.m._forward_hooks))", state="s.m = nn.Identity()", thing="s.m"),
    Effect("hook of a module: before forward of a module",
           "s.m.register_forward_pre_hook(lambda m, i: (i[0] * 2,))",
           "len(s.m._forward_pre_hooks)", state="s.m = nn.Identity()", thing="s.m"),
    _trained("hook of a module: backward of a module",
             "s.m.register_full_backward_hook(lambda m, i, o, l=s.log: l.append(1))\ny = s.m(y)",
             "(len(s.log), len(s.m._backward_hooks))", state="s.m = nn.ReLU()", thing="s.m"),
    Effect("hook of a module: fires in the arm", "y = s.m(y)", "len(s.log)",
           state="s.m = nn.Identity()\n"
           "s.m.register_forward_hook(lambda m, i, o, l=s.log: l.append(1))", thing="s.m"),
    Effect("hook of a module: of all modules",
           "nn.modules.module.register_module_forward_hook(noted)",
           "len(nn.modules.module._global_forward_hooks)",
           setup="def noted(m, i, o):\n    return None\n"),
    Effect("hook of a module: of a state_dict", "s.m.register_state_dict_pre_hook(noted)",
           "len(s.m._state_dict_pre_hooks)", state="s.m = nn.Linear(1, 1)",
           setup="def noted(m, p, k):\n    return None\n", thing="s.m"),
)  # fmt: skip


def _module(name: str, act: str, look: str, state: str = "s.m = nn.Linear(1, 1)") -> Effect:
    return Effect(f"module, {name}", act, look, state=state, thing="s.m")


MODULES: Final = (
    _module("mode: eval", "s.m.eval()", "s.m.training"),
    _module("mode: training", "s.m.training = not s.m.training", "s.m.training"),
    _module("mode: attribute of a layer", "s.m.p = 0.9", "s.m.p", "s.m = nn.Dropout(0.1)"),
    _module("buffer: register", "s.m.register_buffer('extra', torch.ones(1))",
            "list(dict(s.m.named_buffers()))"),
    _module("buffer: rebind", "s.m.kept = s.m.kept + 1", "s.m.kept",
            "s.m = nn.Linear(1, 1)\ns.m.register_buffer('kept', torch.zeros(1))"),
    _module("buffer: change", "s.m.kept.add_(1)", "s.m.kept",
            "s.m = nn.Linear(1, 1)\ns.m.register_buffer('kept', torch.zeros(1))"),
    _module("buffer: None", "s.m.kept = None", "s.m.kept is None",
            "s.m = nn.Linear(1, 1)\ns.m.register_buffer('kept', torch.zeros(1))"),
    _module("parameter: register", "s.m.extra = nn.Parameter(torch.ones(1))",
            "list(dict(s.m.named_parameters()))"),
    _module("parameter: other one", "s.m.weight = s.m.bias", "s.m.weight is s.m.bias"),
    _module("parameter: changed", "with torch.no_grad():\n    s.m.weight.mul_(2)", "s.m.weight"),
    _module("parameter: frozen", "s.m.requires_grad_(False)", "s.m.weight.requires_grad"),
    _module("parameter: tied", "s.m.bias = s.w", "s.m.bias is s.w"),
    _module("submodules: added", "s.m.add_module('extra', nn.Identity())",
            "[n for n, _ in s.m.named_children()]"),
    _module("submodules: other one", "s.m.inner = nn.Tanh()", "type(s.m.inner).__name__",
            "s.m = nn.Module()\ns.m.inner = nn.ReLU()"),
    _module("submodules: deleted", "if hasattr(s.m, 'inner'):\n    del s.m.inner",
            "hasattr(s.m, 'inner')", "s.m = nn.Module()\ns.m.inner = nn.ReLU()"),
    _module("submodules: list", "s.m.append(nn.Identity())", "len(s.m)", "s.m = nn.ModuleList()"),
    _module("submodules: dictionary", "s.m['k'] = nn.Identity()", "list(s.m)",
            "s.m = nn.ModuleDict()"),
    _module("forward: running statistics", "s.a = s.m(torch.arange(4.).view(4, 1))",
            "(s.m.running_mean, s.m.num_batches_tracked)", "s.m = nn.BatchNorm1d(1)"),
    _module("forward: dropout", "y = s.m(y)", "None", "s.m = nn.Dropout(0.5)"),
    _module("as a whole: load_state_dict", "s.m.load_state_dict(s.saved)", "s.m.weight",
            "s.m = nn.Linear(1, 1)\ns.saved = nn.Linear(1, 1).state_dict()"),
    _module("as a whole: zero_grad", "s.m.zero_grad()", "s.m.weight.grad is None",
            "s.m = nn.Linear(1, 1)\ns.m.weight.grad = torch.ones(1, 1)"),
    _module("as a whole: apply", "s.m.apply(lambda m: s.log.append(1))", "len(s.log)"),
    _module("as a whole: init", "nn.init.constant_(s.m.weight, 3.)", "s.m.weight"),
    _module("as a whole: double", "s.m.double()", "s.m.weight.dtype"),
    _module("mode: forward of its own", "s.m.forward = lambda v: v * 3", "s.m(s.t + 1)",
            "s.m = nn.Identity()"),
    _module("mode: compile", "s.m.compile(backend='eager')", "s.m._compiled_call_impl is None",
            "s.m = nn.Identity()"),
    _module("forward: uses a layer", "y = s.m(y.view(-1, 1)).view(-1)", "None"),
    _trained("optimizer: step", "s.opt.step()", "s.w.detach().clone()",
             state="s.opt = torch.optim.SGD([s.w], lr=0.5)\ns.w.grad = torch.ones(1)"),
    _trained("optimizer: zero_grad", "s.opt.zero_grad()", _GRAD,
             state="s.opt = torch.optim.SGD([s.w], lr=0.5)\ns.w.grad = torch.ones(1)"),
    _trained("optimizer: learning rate", "s.opt.param_groups[0]['lr'] *= 0.5",
             "s.opt.param_groups[0]['lr']", state="s.opt = torch.optim.SGD([s.w], lr=0.5)"),
    _trained("optimizer: scheduler", "s.sched.step()", "s.sched.last_epoch",
             state="s.opt = torch.optim.SGD([s.w], lr=0.5)\ns.opt.step()\n"
                   "s.sched = torch.optim.lr_scheduler.StepLR(s.opt, 1)"),
)  # fmt: skip

EFFECTS: Final = (*GRADIENTS, *HOOKS, *MODULES)
