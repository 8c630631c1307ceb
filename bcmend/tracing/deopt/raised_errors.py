"""Which exceptions are known to come from an operation of a graph.

A call whose graph has failed is made again only for these. All others have another purpose than to
say that an operation cannot be done: what checkpointing ends a recomputation with, a time limit, an
exception of a hook, of a mode or of another thread. They go to the caller as they came.

An operation raises one of a few classes, with a message, and between the graph and the operation
there is no code but that of the back end and of torch's operators. A hook or a mode leaves a frame
in the traceback, as does a handler of a signal; what is raised in a thread from outside has no
message (``PyThreadState_SetAsyncExc`` is given a class). Errors of the machine, such as those of
the allocator, are none of the operation's.
"""

from __future__ import annotations

import contextlib
from types import FrameType, TracebackType
from typing import Final

from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from bcmend import meta_keys
from bcmend.dynamo import compat, frames
from bcmend.knowledge.interruptions import code_run_first, entries
from bcmend.knowledge.own_code import FILES_BEGIN

#: The classes of what operations raise; no class derived from one of them.
_CLASSES: Final = frozenset(
    {
        AssertionError,
        IndexError,
        NotImplementedError,
        OverflowError,
        RuntimeError,
        TypeError,
        ValueError,
        ZeroDivisionError,
        LinAlgError,
    }
)

#: Words in messages of a ``RuntimeError`` that the machine is the reason for. A check of a library
#: of CUDA and the allocator of the CPU have no class of their own (c10/cuda/CUDAException.h,
#: aten/src/ATen/cuda/Exceptions.h, c10/core/impl/alloc_cpu.cpp).
_OF_THE_MACHINE: Final = (
    "CUDA error",
    "CUDA driver error",
    "cuDNN error",
    "HIP error",
    "MPS backend out of memory",
    "NCCL error",
    "Triton Error",
    "can't allocate memory",
    "not enough memory",
    "out of memory",
)

#: The file of the function that ``graph_failure`` puts around a graph.
WRAPPER: Final = "<graph>"

#: The modules of the code that Inductor writes.
_INDUCTOR: Final = "torch._inductor.runtime.compile_tasks."

#: Files of code that calls the compiled function, before anything of a graph runs.
_AROUND_GRAPHS: Final = (f"{frames.TORCH}_dynamo/", WRAPPER)

#: Files of torch in which graphs and operators run, and that call nothing of the program's.
_OF_GRAPHS: Final = (
    "__init__.py",
    "_compile.py",
    "_decomp/",
    "_dynamo/",
    "_functorch/",
    "_higher_order_ops/",
    "_inductor/",
    "_jit_internal.py",
    "_library/",
    "_linalg_utils.py",
    "_lobpcg.py",
    "_lowrank.py",
    "_numpy/",
    "_ops.py",
    "_prims/",
    "_prims_common/",
    "_refs/",
    "_tensor.py",
    "amp/",
    "autograd/__init__.py",
    "autograd/function.py",
    "autograd/grad_mode.py",
    "distributions/",
    "fft/",
    "functional.py",
    "fx/",
    "linalg/",
    "nn/",
    "random.py",
    "sparse/",
    "special/",
    "utils/_contextlib.py",
    "utils/_device.py",  # the default device, a mode that changes arguments alone
    "utils/_pytree.py",
    "utils/_sympy/",
)

#: The only function of its file that graphs call; the others are hooks.
_ENGINE: Final = (f"{frames.TORCH}autograd/graph.py", "_engine_run_backward")


def note_of_a_function(error: Exception) -> None:
    """Have ``error``, which a function of the user inside of a graph has raised, be of that."""
    vars(error)[meta_keys.OF_A_FUNCTION] = True


def is_of_an_operation(error: BaseException, traceback: TracebackType | None) -> bool:
    """Return whether an operation of a graph is known to have raised ``error``.

    ``traceback`` begins with the entry behind the frame that called the graph.
    """
    if meta_keys.OF_A_FUNCTION in vars(error):
        return True
    if not _may_be_of_an_operation(error) or not _hooks_leave_frames():
        return False
    is_inside = False
    for entry in entries(traceback):
        frame = entry.tb_frame
        if not is_inside:
            # A back end of the program's may call what it was given from a function of its own.
            is_around = frame.f_code.co_filename.startswith(_AROUND_GRAPHS)
            is_inside = not is_around and _is_of_graphs(frame)
        elif not _is_of_graphs(frame):
            return False
    return is_inside


def is_of_the_graph_called_here(error: BaseException) -> bool:
    """Return whether an operation of the graph that the caller has called is known to have raised.

    The caller is handling ``error``.
    """
    called = error.__traceback__
    return called is not None and is_of_an_operation(error, called.tb_next)


def _may_be_of_an_operation(error: BaseException) -> bool:
    """Return whether ``error`` is of a class that operations raise, and has a message of theirs."""
    if type(error) not in _CLASSES or not error.args:
        return False
    text = str(error.args[0])
    return not any(each in text for each in _OF_THE_MACHINE)


def _is_of_graphs(frame: FrameType) -> bool:
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    return (
        file.startswith(("<eval_with_key>", FILES_BEGIN, WRAPPER))
        or str(frame.f_globals.get("__name__")).startswith(_INDUCTOR)
        or (file.startswith(frames.TORCH) and file[len(frames.TORCH) :].startswith(_OF_GRAPHS))
        or (file, name) == _ENGINE
        or file == contextlib.__file__
    )


def _hooks_leave_frames() -> bool:
    """Return whether the hooks of saved tensors in force, if any, are functions in Python."""
    hooks = compat._top_saved_tensors_default_hooks(False)
    return hooks is None or all(code_run_first(each) is not None for each in hooks)
