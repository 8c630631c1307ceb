"""Dynamo's callback for the calls of a boundary: bodies are captured whole, all else as ever.

A body that compiles only in pieces must not run: the boundary waits for the error, changes
something and calls again. So every graph break is an error while a body is being compiled, unless
it has turned out that its graph has to break. Dynamo's switch for that is one for the whole
process, and is therefore thrown only while a body is compiled, under the lock that Dynamo compiles
under itself.

Where a piece behind a graph break fails on fake tensors, Dynamo raises that. What the piece would
have done before is then lost. So Python runs it in this call, and fails as eager execution does.
"""

from __future__ import annotations

from typing import Any, Final

from torch._dynamo import exc
from torch._dynamo.convert_frame import compile_lock
from torch._dynamo.eval_frame import skip_code
from torch._dynamo.types import ConvertFrameReturn
from torch._dynamo.utils import _get_error_on_graph_break, _set_error_on_graph_break
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from bcmend.runtime import backoff, sites

__all__ = ["is_of_a_compiler", "of_bodies"]

_OURS: Final = "_bcmend_of_bodies"


def of_bodies(callback: Any) -> Any:
    """Return what Dynamo is to call instead of ``callback``, always the same for the same one."""
    known = getattr(callback, _OURS, None)
    if known is None and callable(callback):
        known = _OfBodies(callback)
        setattr(callback, _OURS, known)
        setattr(known, _OURS, known)  # a boundary within another
    return known if known is not None else callback


class _OfBodies:
    """What Dynamo calls to compile a frame. It looks for the back end behind the attribute."""

    def __init__(self, callback: Any) -> None:
        self._torchdynamo_orig_backend = callback

    def __call__(self, frame: Any, *others: Any) -> Any:
        compiler = self._torchdynamo_orig_backend
        if backoff.may_break(frame.f_code):
            return _a_piece(compiler, frame, *others)
        with compile_lock:
            return _captured_whole(compiler, frame, *others)


def _a_piece(compiler: Any, *given: Any) -> Any:
    """Compile what may break; have Python run a piece that fails on fake tensors.

    And from then on a piece in which torch asks for what only the data tell.

    Where the back end fails, nothing in the piece is mended: the call cannot be made again.
    """
    sites.clear_recent()
    try:
        return compiler(*given)
    except (exc.TorchRuntimeError, IndexError):
        return ConvertFrameReturn(apply_to_code=False, skip_reason="bcmend: it fails")
    except GuardOnDataDependentSymNode:
        return ConvertFrameReturn(skip_reason="bcmend: a size is known at run time only")
    except exc.BackendCompilerFailed as error:
        if not sites.withdraw_recent("not-captured", backoff.summary(error)):
            raise
        return compiler(*given)


def is_of_a_compiler(error: IndexError) -> bool:
    """Whether an error comes out of a compilation: Dynamo hands on those of a back end as they are.

    It notes which compilation that was.
    """
    return getattr(error, "compile_id", None) is not None


def _captured_whole(compiler: Any, *given: Any) -> Any:
    """Make every graph break an error, and leave no trace of that.

    Dynamo remembers the mode of the last frame that it compiled, and goes by it for a frame that it
    does not compile because the limit of recompilations is reached (``ConvertFrameBox`` in
    torch/_dynamo/convert_frame.py).
    """
    converter = getattr(
        getattr(compiler, "_torchdynamo_orig_backend", None), "_inner_convert", None
    )
    remembered = getattr(converter, "_box", None)
    mode, before = _get_error_on_graph_break(), getattr(remembered, "error_on_graph_break", None)
    _set_error_on_graph_break(True)
    try:
        return compiler(*given)
    finally:
        _set_error_on_graph_break(mode)
        if remembered is not None:
            remembered.error_on_graph_break = before


for _function in (of_bodies, is_of_a_compiler):
    skip_code(_function.__code__)
