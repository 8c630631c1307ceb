"""What Inductor compiles a backward with, in the conditions of its forward.

Torch compiles most backwards when they are first called, long after the trace.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from bcmend.dynamo import compat

Compiler = Callable[..., Any]


def with_backward(compiler: Any, wrap: Callable[[Compiler], Compiler]) -> Any:
    """Return a compiler of graphs that compiles the backward of this one by a wrapped function.

    Neither the compiler nor its parts change, which may serve other graphs as well.
    """
    backward = compiler.kwargs.get("bw_compiler")
    if backward is None:
        return compiler
    wrapped: Any = copy.copy(backward)
    if isinstance(backward, compat.SerializableAOTDispatchCompiler):
        wrapped.compiler_fn = wrap(backward.compiler_fn)
    else:
        wrapped = wrap(backward)
    made = copy.copy(compiler)
    made.kwargs = {**compiler.kwargs, "bw_compiler": wrapped}
    return made
