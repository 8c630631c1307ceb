"""Operators of bcmend, none of which CUDA graphs can hold, and torch's tables of handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import torch

from bcmend.dynamo import compat

# Tables that say what handles functions, operators and kernels.
FUNCTIONS: Final = "functions"
OPERATORS: Final = "operators"
KERNELS: Final = "kernels"


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One entry of a table of Dynamo's; ``make`` gets the present one or ``None``.

    ``module`` is the one of bcmend that declares it.
    """

    table: str
    key: Any
    purpose: str
    make: Callable[[Any], Any]
    module: str = ""

    @property
    def target(self) -> str:
        parts = self.key if isinstance(self.key, tuple) else (self.key,)
        return f"{self.table}[{', '.join(map(_name, parts))}]"


def _name(key: Any) -> str:
    return str(getattr(key, "__name__", None) or getattr(key, "name", key))


_LIBRARY: Final[Any] = torch.library.Library("bcmend", "DEF")  # type: ignore[no-untyped-call]


def define(
    signature: str,
    run: Callable[..., Any],
    fake: Callable[..., Any],
    *,
    has_effect: bool = True,
    skips_autograd: bool = False,
    autograd: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
) -> Any:
    """Define an operator of ``torch.ops.bcmend``, and return its only overload.

    Args:
        signature: its name, parameters and results, as torch writes them.
        run: computes it.
        fake: computes its results on fake tensors.
        has_effect: it is neither removed nor run twice, and several keep their order
            (torch/_higher_order_ops/effects.py).
        skips_autograd: whether autograd does not see it at all.
        autograd: what keeps for the backward what it needs, and the backward, as functions that
            ``torch.library.register_autograd`` takes.
    """
    name = signature.partition("(")[0]
    _LIBRARY.define(signature, tags=(torch.Tag.cudagraph_unsafe,))
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    if skips_autograd:
        _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake(f"bcmend::{name}", fake, lib=_LIBRARY)
    if autograd is not None:
        keep, backward = autograd
        torch.library.register_autograd(
            f"bcmend::{name}", backward, setup_context=keep, lib=_LIBRARY
        )
    if has_effect:
        compat._register_effectful_op(f"bcmend::{name}", compat._EffectType.ORDERED)
    return getattr(torch.ops.bcmend, name).default


@contextmanager
def autograd_inside() -> Iterator[None]:
    """Let autograd see what an operator computes, as it does outside of one."""
    included = compat._dispatch_tls_local_include_set().add(compat.DispatchKey.ADInplaceOrView)
    excluded = compat._dispatch_tls_local_exclude_set()
    for name in ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor"):
        excluded = excluded.remove(getattr(compat.DispatchKey, name))
    with compat._ForceDispatchKeyGuard(included, excluded), torch.enable_grad():
        yield


def keep_nothing(ctx: Any, inputs: Any, output: Any) -> None:
    """Keep nothing for a backward; what ``define`` takes as ``autograd`` begins with it."""


def no_backward(what: str) -> Callable[..., Any]:
    """Return the backward of what has none in a graph."""

    def backward(ctx: Any, *gradients: Any) -> NoReturn:
        raise RuntimeError(
            f"bcmend: in one graph the backward of {what} has no backward itself; call it without"
            " torch.compile"
        )

    return backward


def gradients_again(
    run: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]],
    tensors: Sequence[torch.Tensor],
    is_needed: Sequence[bool],
    places: Sequence[int],
    gradients: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Return gradients of tensors by another forward, for the backward of an operator.

    Args:
        run: the forward, given tensors like ``tensors``.
        tensors: what the operator was given.
        is_needed: for each of these, whether its gradient is asked for.
        places: at which of the results ``gradients`` flow in.
        gradients: those of some results, with the shapes of these.

    Returns:
        A gradient for each tensor that needs one.
    """
    given = zip(tensors, is_needed, strict=True)
    own = [tensor.detach().requires_grad_(is_one) for tensor, is_one in given]
    with autograd_inside():
        results = run(own)
        found = torch.autograd.grad(
            [results[place] for place in places],
            [each for each in own if each.requires_grad],
            list(gradients),
            allow_unused=True,
            materialize_grads=True,
        )
    return [each.contiguous() for each in found]


def gradients_where_needed(
    backward: Callable[..., Sequence[torch.Tensor]],
    gradients: Sequence[torch.Tensor | None],
    is_needed: Sequence[bool],
    *given: Any,
) -> list[torch.Tensor | None]:
    """Return gradients of tensors by an operator that calls ``gradients_again``.

    Args:
        backward: the operator, given the gradients that flow in, at which places they do,
            ``is_needed`` and the rest.
        gradients: those of all results; ``None`` where nothing flows in.
        is_needed: for each tensor that the forward was given, whether its gradient is asked for.
        given: what else the operator is given.

    Returns:
        As many as there are tensors; ``None`` for those that need none, or that get none.
    """
    places = [place for place, each in enumerate(gradients) if each is not None]
    known = [gradients[place] for place in places]
    found = iter(backward(known, places, is_needed, *given) if places else ())
    return [next(found, None) if each else None for each in is_needed]


def like_needed(tensors: Sequence[torch.Tensor], is_needed: Sequence[bool]) -> list[torch.Tensor]:
    """Return, for fake tensors, tensors of the forms that ``gradients_again`` gives."""
    given = zip(tensors, is_needed, strict=True)
    return [tensor.new_empty(tensor.shape) for tensor, is_one in given if is_one]


def token() -> torch.Tensor:
    """Return the result of an operator that has none: an empty tensor."""
    return torch.empty((0,), dtype=torch.int64, device="cpu")


class _Kernels:
    """What operators with graphs as arguments run for a dispatch key or in a mode, as a table."""

    @staticmethod
    def _of(operator: Any, key: Any) -> Any:
        is_mode = isinstance(key, type)
        return operator.python_key_table if is_mode else operator.py_kernels

    def get(self, place: tuple[Any, Any], default: Any) -> Any:
        return self._of(*place).get(place[1], default)

    def __setitem__(self, place: tuple[Any, Any], kernel: Any) -> None:
        self._of(*place)[place[1]] = kernel
        place[0]._dispatch_cache.clear()

    def __delitem__(self, place: tuple[Any, Any]) -> None:
        del self._of(*place)[place[1]]
        place[0]._dispatch_cache.clear()


def table(name: str) -> Any:
    """Return a table by its name, to be read and written as a dictionary is."""
    if name == KERNELS:
        return _Kernels()
    if name == FUNCTIONS:
        found: dict[Any, Any] = compat.TorchInGraphFunctionVariable._get_handlers()
        return found
    models: dict[Any, Any] = compat.higher_order_ops._hop_name_to_variable_class
    return models
