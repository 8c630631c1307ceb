"""Programs through which gradients flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bcmend.liveness.program import Arguments, program

Function = Callable[..., Any]


def leaves() -> list[Arguments]:
    """Calls with two vectors that require gradients."""
    values = ([1.0, 2, 3], [-1.0, -2, -3], [4.0, -1, 0.5])
    return [
        (torch.tensor(each, requires_grad=True), torch.ones(3, requires_grad=True))
        for each in values
    ]


@program("OutputGraph.install_global_unsafe", inputs=leaves, training=True)
def a_gradient_of_one_side() -> Function:
    def program(x: Tensor, scale: Tensor) -> Any:
        if x.sum() > 0:
            return x * scale
        return x - 1

    return program


class Squared(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return the square."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return three times the gradient, to be known by it."""
        (x,) = ctx.saved_tensors
        return 6 * x * gradients[0]


@program("AutogradFunctionApplyVariable.trace_backward_graph", inputs=leaves, training=True)
def a_function_with_a_backward() -> Function:
    def program(x: Tensor, scale: Tensor) -> Any:
        if x.sum() > 0:
            return Squared.apply(x) * scale
        return x - scale

    return program


class Weighted(torch.autograd.Function):
    """A function that gets one tensor twice, and gives one gradient for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, same: Tensor) -> Tensor:
        """Return the product of all three."""
        ctx.save_for_backward(x, weight, same)
        return x * weight * same

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradient of the first, and none for the others."""
        _, weight, same = ctx.saved_tensors
        return weight * same * gradients[0], None, None


@program("AutogradFunctionApplyVariable.rewire_bwd_graph_outputs", inputs=leaves, training=True)
def a_function_that_is_given_a_tensor_twice() -> Function:
    def program(x: Tensor, scale: Tensor) -> Any:
        weight = scale.detach()
        if x.sum() > 0:
            x = x * scale
        return Weighted.apply(x, weight, weight)

    return program


@program(
    "Tensor.register_hook",
    "RemovableHandleVariable.call_method:remove",
    inputs=leaves,
    training=True,
)
def hooks_of_tensors() -> Function:
    def program(x: Tensor, scale: Tensor) -> Any:
        y = x * scale if x.sum() > 0 else x - scale
        x.register_hook(lambda gradient: gradient * 2)
        handle = scale.register_hook(lambda gradient: gradient * 3)
        handle.remove()
        return y * 3

    return program


@program(
    "RemovableHandleVariable.call_method:remove", inputs=leaves, fullgraph=False, training=True
)
def a_hook_that_one_side_removes() -> Function:
    def program(x: Tensor, scale: Tensor) -> Any:
        handle = scale.register_hook(lambda gradient: gradient * 3)
        if x.sum() > 0:
            handle.remove()
        return x * scale

    return program


@program(
    "Tensor.retain_grad",
    "Tensor.register_post_accumulate_grad_hook",
    inputs=leaves,
    fullgraph=False,
    training=True,
)
def gradients_that_are_kept() -> Function:
    def program(x: Tensor, scale: Tensor) -> Any:
        y = x * scale if x.sum() > 0 else x - scale
        torch.Tensor.retain_grad(y)
        scale.register_post_accumulate_grad_hook(lambda leaf: None)
        return y * 3

    return program


@program(
    "Tensor.requires_grad_",
    "OutputGraph._check_requires_grad_intermediate_outputs",
    inputs=leaves,
    fullgraph=False,
    training=True,
)
def leaves_in_a_graph() -> Function:
    def program(x: Tensor, scale: Tensor) -> Any:
        y = torch.zeros(3)
        y.requires_grad_()
        scale.requires_grad_(False)
        return (x * scale if x.sum() > 0 else x - 1) + y

    return program


@program(
    "Tensor.set_",
    "Tensor.untyped_storage",
    "Tensor.is_set_to",
    "Tensor.share_memory_",
    fullgraph=False,
)
def memory_of_tensors() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 2 if x.sum() > 0 else x - 1
        z = torch.zeros(3)
        z.set_(y)
        size = y.untyped_storage().nbytes()
        z.share_memory_()
        return z + 1, size, y.is_set_to(x)

    return program


@program("VariableBuilder.wrap_module")
def a_recurrent_layer() -> Function:
    torch.manual_seed(3)
    layer = torch.nn.GRU(3, 2)

    def program(x: Tensor) -> Any:
        y, _ = layer(x.reshape(1, 1, 3))
        return y + 1 if x.sum() > 0 else y - 1

    return program


@program("VariableBuilder.wrap_module")
def a_scripted_module() -> Function:
    torch.manual_seed(3)
    layer: Any = torch.jit.script(torch.nn.Linear(3, 3))

    def program(x: Tensor) -> Any:
        y = layer(x)
        return y + 1 if x.sum() > 0 else y - 1

    return program


@program(
    *(
        f"kernels[{operator}, {mode}]"
        for operator in ("cond", "while_loop")
        for mode in ("_CachingTorchDispatchMode", "_CachedTorchDispatchMode")
    ),
    inputs=leaves,
    training=True,
)
def a_checkpoint() -> Function:
    torch.manual_seed(3)
    layer, other = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def body(x: Tensor) -> Tensor:
        h = layer(x)
        if h.sum() > 0:
            h = layer(h).sin().exp()
        else:
            h = other(h).tanh().sin()
        scale = x.detach().abs().sum()
        while scale > 1.0:
            scale = scale / 3
        result: Tensor = layer(h * scale)
        return result

    def program(x: Tensor, scale: Tensor) -> Any:
        result = checkpoint(body, x * scale, use_reentrant=False)
        return result * 2

    return program


def vectors() -> list[Arguments]:
    """Calls with a vector that requires no gradients yet, in a dictionary."""
    return [({"x": torch.tensor(each)},) for each in ([1.0, 2.0], [-1.0, -2.0], [0.5, 3.0])]


@program(
    "gradients inside of a graph",
    "flags of inputs that may become leaves",
    "inputs that become leaves",
    inputs=vectors,
    backend="aot_eager",
    training=True,
)
def gradients_of_an_argument() -> Function:
    def program(held: dict[str, Tensor]) -> Any:
        was, x = held["x"].requires_grad, held["x"].requires_grad_()
        (slope,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
        return (slope * 2 if slope.detach().sum() > 4 else slope - 1), was

    return program


@program(
    "gradients of leaves",
    inputs=vectors,
    backend="aot_eager",
    training=True,
)
def backward_inside_of_the_call() -> Function:
    def program(held: dict[str, Tensor]) -> Any:
        x = held["x"].detach().clone().requires_grad_()
        x.pow(3).sum().backward()
        same: Any = x.contiguous().grad
        return same * 2 if same.sum() > 4 else same - 1

    return program
