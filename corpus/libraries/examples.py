"""Finds a call in the examples of a docstring: they are run, and the call is noted on the way.

What is noted are the arguments of the first call of the function, or of ``forward`` of the first
instance of the class, as they are when it begins.
"""

from __future__ import annotations

import contextlib
import copy
import doctest
import importlib
import inspect
import io
import itertools
import sys
import textwrap
import warnings
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import torch

from corpus.libraries.call import Call, NoCall

__all__ = ["call_of_examples"]


class _Noted(BaseException):
    """Ends examples, once the call that is looked for has begun.

    No ``Exception``: the library might take it for a failure of its own.
    """


def call_of_examples(target: Any) -> Call:
    """Return the first call that the examples of a function or class make.

    Raises:
        NoCall: there are none, or they end before it.
    """
    examples = _examples(target)
    if not examples:
        raise NoCall("no examples")
    function = target.forward if inspect.isclass(target) else target
    code = inspect.unwrap(function).__code__
    found: list[Call] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is code and not found:
            call = _call_of(target, code, frame)
            if call is not None:
                found.append(call)
                raise _Noted

    _run(examples, target, note)
    if not found:
        raise NoCall("its examples do not call it")
    return found[0]


def _examples(target: Any) -> list[str]:
    text = inspect.getdoc(target) or ""
    with contextlib.suppress(ValueError):
        return [each.source for each in doctest.DocTestParser().get_examples(text)]
    return []


def _run(examples: list[str], target: Any, note: Any) -> None:
    names: dict[str, Any] = {"torch": torch, target.__name__: target}
    module = importlib.import_module(target.__module__)
    names = {**vars(module), **names}
    package = target.__module__.partition(".")[0]
    names[package] = importlib.import_module(package)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for source in examples:
            sys.setprofile(note)
            try:
                exec(compile(textwrap.dedent(source), "<example>", "single"), names)
            except _Noted:
                return
            except Exception:
                continue  # an example that needs what is not here; a later one may do without
            finally:
                sys.setprofile(None)


def _call_of(target: Any, code: CodeType, frame: FrameType) -> Call | None:
    """Return the call of a frame that begins; of a class only that of its own instances."""
    names = iter(code.co_varnames)
    here = frame.f_locals
    flat = [here[name] for name in itertools.islice(names, code.co_argcount)]
    named = {name: here[name] for name in itertools.islice(names, code.co_kwonlyargcount)}
    flat += _rest(code, inspect.CO_VARARGS, names, here) or ()
    named |= _rest(code, inspect.CO_VARKEYWORDS, names, here) or {}
    called = target
    if inspect.isclass(target):
        called, *flat = flat
        if type(called) is not target:
            return None
    try:
        return Call(*copy.deepcopy((called, tuple(flat), named)), how="example")
    except Exception:
        return None  # what cannot be copied cannot be called three times alike


def _rest(code: CodeType, flag: int, names: Iterator[str], here: dict[str, Any]) -> Any:
    return here[next(names)] if code.co_flags & flag else None
