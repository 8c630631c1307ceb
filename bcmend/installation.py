"""Mend whatever is given to ``torch.compile``, by whomever, without a change of their code."""

from __future__ import annotations

import atexit
import builtins
import inspect
import logging
import multiprocessing
import os
import runpy
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from bcmend.knowledge import opt_out

if TYPE_CHECKING:
    from bcmend.policy import Policy
    from bcmend.reports.receipt import Receipt

_LOG: Final = logging.getLogger("bcmend")
#: A folder of what Python runs when a process starts.
STARTUP: Final = str(Path(__file__).parent / "startup")
#: What was patched by it, so that ``uninstall`` leaves alone what the program has patched.
_PATCHED: Final[list[Callable[[], Any]]] = []
#: What a receipt is about: functions, and the classes of modules, which outlive them.
_COMPILED: Final[list[Callable[[], Any]]] = []
_LOCK: Final = threading.RLock()


def install(policy: Policy | None = None, *, receipt: bool = True) -> None:
    """Have every object that ``torch.compile`` is given from now on patched first.

    That is what libraries, decorators and ``nn.Module.compile`` compile as well. What cannot be
    patched is compiled as ever. Installing again replaces the policy.

    Args:
        policy: what to mend and how.
        receipt: whether the process ends with a line on standard error that says what was mended,
            if anything was compiled. Worker processes have none.

    Raises:
        PolicyError: ``policy`` is no ``Policy``. Nothing is changed.
    """
    from bcmend import api
    from bcmend.patching import compilations

    chosen = api.policy_of(policy)
    if not api.is_used():
        return
    compilations.listen(lambda obj: _patch(obj, chosen))
    _end_with_a_receipt(is_wanted=receipt)


def _end_with_a_receipt(*, is_wanted: bool) -> None:
    global _noted_by
    if _noted_by is _strongly:
        return  # whoever runs the script shows it
    atexit.unregister(_show_receipt)
    _noted_by = _lightly if is_wanted else None
    if is_wanted:
        atexit.register(_show_receipt, os.getpid())


def _show_receipt(process: int) -> None:
    is_child = os.getpid() != process or multiprocessing.parent_process() is not None
    if not is_child and os.environ.get("RANK", "0") == "0" and (found := receipt()) is not None:
        print(found, file=sys.stderr)


def uninstall() -> None:
    """Give ``torch.compile`` back as it was, and unpatch what it has patched since ``install``."""
    from bcmend import api
    from bcmend.patching import compilations

    if not compilations.leave():
        return
    _end_with_a_receipt(is_wanted=False)
    with _LOCK:
        if _noted_by is None:
            _COMPILED.clear()
        found = [obj for each in _PATCHED if (obj := each()) is not None]
        _PATCHED.clear()
    for each in found:
        api.unpatch(each)
    api.unpatch_what_is_gone()


def _patch(obj: Any, policy: Policy) -> None:
    from bcmend import api
    from bcmend.errors import BcmendError, UnsupportedObject

    subject = _subject(obj)
    try:
        if api.is_patched(subject):
            return
        kinds = _kinds_of(subject)
        api.patch(subject, policy=policy)
    except UnsupportedObject as error:
        _LOG.info("install: compiled as without bcmend: %s", error)
        return
    except BcmendError as error:
        _LOG.warning("bcmend: compiled as without bcmend: %s", error)
        return
    with _LOCK:
        _PATCHED.extend(_reference(each) for each in (subject, *kinds))
        if _noted_by is not None:
            _COMPILED.append(_noted_by(_outlives(subject)))


def _outlives(subject: Any) -> Any:
    """Return what reports say of an object after it is gone: of a module, its class."""
    import torch

    return type(subject) if isinstance(subject, torch.nn.Module) else subject


def _strongly(obj: Any) -> Callable[[], Any]:
    """Return what gives an object and keeps it alive."""
    return lambda: obj


def _lightly(obj: Any) -> Callable[[], Any]:
    """Return the same, but for what may hold tensors: a function with a closure, a method."""
    is_light = isinstance(obj, type) or (isinstance(obj, FunctionType) and not obj.__closure__)
    return _strongly(obj) if is_light else _reference(obj)


#: How what is compiled is noted for a receipt; ``None`` for not at all.
_noted_by: Callable[[Any], Callable[[], Any]] | None = None


def _reference(obj: Any) -> Callable[[], Any]:
    """Return what gives an object; what has no weak references is kept alive."""
    try:
        return weakref.WeakMethod(obj) if isinstance(obj, MethodType) else weakref.ref(obj)
    except TypeError:
        return _strongly(obj)


def _kinds_of(obj: Any) -> list[type]:
    """Return the classes that stand for a module once it is gone, but for those patched already."""
    from bcmend import api

    return [each for each in api.kinds_of(obj) if not api.is_patched(each)]


def _subject(obj: Any) -> Any:
    """Return what stands for an object that is compiled: for a method of a module, the module."""
    import torch

    if isinstance(obj, MethodType) and isinstance(obj.__self__, torch.nn.Module):
        return obj.__self__ if str(obj.__func__.__module__).startswith("torch.") else obj
    if isinstance(obj, (torch.nn.Module, type, MethodType, FunctionType)):
        return obj
    called: Any = inspect.getattr_static(type(obj), "__call__", None)
    return MethodType(called, obj) if isinstance(called, FunctionType) else obj


def install_with_torch(policy: Policy | None = None) -> None:
    """Install as soon as ``torch`` is imported; at once if it is.

    Torch alone does not look into Dynamo before something is compiled, nor does this.
    """
    if opt_out.is_process_off():
        return
    if "torch" in sys.modules:
        _install_when_something_is_compiled(policy)
    elif not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder(policy))


def _install_when_something_is_compiled(policy: Policy | None) -> None:
    from bcmend.patching import compilations
    from bcmend.policy import DEFAULT

    def begin(obj: Any) -> None:
        install(policy, receipt=False)
        _patch(obj, DEFAULT if policy is None else policy)

    compilations.listen(begin)


class _Finder(MetaPathFinder):
    """Finds ``torch`` as without it, and installs once that is loaded."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._policy)
        return spec


class _Loader(Loader):
    """Loads a module by its own loader, and installs."""

    def __init__(self, inner: Loader, policy: Policy | None) -> None:
        self._inner, self._policy = inner, policy

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._inner
        self._inner.exec_module(module)
        _install_when_something_is_compiled(self._policy)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def give_to_children() -> None:
    """Have processes that this one starts install as well, unless this one is switched off."""
    if opt_out.is_process_off():
        return
    os.environ[opt_out.VARIABLE] = "1"
    before = os.environ.get("PYTHONPATH", "")
    if STARTUP not in before.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (STARTUP, before)))


def receipt() -> Receipt | None:
    """Return what became of all that was compiled and is noted; None if that is nothing."""
    with _LOCK:
        alive = [obj for each in _COMPILED if (obj := each()) is not None]
    found = list({id(each): each for each in alive}.values())
    if not found:
        return None
    from bcmend import api
    from bcmend.reports.receipt import Receipt

    traces = [trace for each in found for trace in api.why(each).traces]
    return Receipt(tuple(map(api.report, found)), sum(each.seconds for each in traces))


def run_script(arguments: Sequence[str], *, is_module: bool, policy: Policy | None = None) -> None:
    """Run ``arguments[0]`` as ``__main__``; processes that it starts mend as well.

    Those do so by the default policy.
    """
    global _noted_by
    _noted_by = _strongly
    name = arguments[0]
    install_with_torch(policy)
    give_to_children()
    sys.argv[:] = arguments
    if is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        path = os.path.abspath(name)
        sys.path[0] = os.path.dirname(path)
        if os.path.isfile(path) and not path.endswith((".zip", ".pyz", ".pyc")):
            _run_source(path)
        else:
            runpy.run_path(name, run_name="__main__")


def _run_source(path: str) -> None:
    """Run a source file as ``__main__``, which it stays until the process ends."""
    module = ModuleType("__main__")
    loader = SourceFileLoader("__main__", path)
    vars(module).update(__file__=path, __builtins__=builtins, __loader__=loader, __cached__=None)
    sys.modules["__main__"] = module
    exec(loader.source_to_code(loader.get_data(path), path), vars(module))
