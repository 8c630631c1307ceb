"""Guesses arguments from the names and annotations of parameters.

Each parameter has some forms to try. Calls are tried in the order of how far they go down the lists
of forms, so that most begin with pictures; the first that eager execution accepts is taken.
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Module

from corpus.libraries.call import Call, NoCall

__all__ = ["guessed_call"]

#: How many calls are tried, and for how many seconds.
_TRIED: Final = 120
_SECONDS: Final = 20.0

Forms = Callable[[], list[Any]]


def _pictures() -> list[Any]:
    return [torch.rand(2, 3, 32, 32), torch.rand(2, 8), torch.rand(2, 1, 32, 32), torch.rand(4)]


def _points() -> list[Any]:
    return [torch.rand(2, 8, 2), torch.rand(2, 8, 3), torch.rand(8, 2), torch.rand(8, 3)]


def _boxes() -> list[Any]:
    corner = torch.rand(4, 2) * 8
    boxes = torch.cat([corner, corner + 4], dim=-1)
    corners = torch.tensor([[[1.0, 1.0], [9.0, 1.0], [9.0, 7.0], [1.0, 7.0]]]).repeat(2, 1, 1)
    return [boxes, corners, boxes.unsqueeze(0)]


def _matrices() -> list[Any]:
    square = torch.eye(3).repeat(2, 1, 1) + 0.05 * torch.rand(2, 3, 3)
    return [square, square[:, :2], torch.eye(4).repeat(2, 1, 1), torch.rand(2, 4, 4)]


def _indices() -> list[Any]:
    edges = torch.tensor([[0, 1, 2, 3, 0, 2], [1, 2, 3, 0, 2, 0]])
    return [edges, torch.tensor([0, 0, 1, 1]), torch.randint(0, 4, (2, 8)), edges[0]]


def _labels() -> list[Any]:
    return [torch.randint(0, 3, (8,)), torch.randint(0, 2, (2, 32, 32)), torch.rand(8)]


def _masks() -> list[Any]:
    return [torch.rand(2, 1, 32, 32) > 0.5, torch.rand(2, 8) > 0.3, torch.tensor([True, False] * 2)]


def _sounds() -> list[Any]:
    return [torch.rand(2, 4000) - 0.5, torch.rand(2, 1, 4000) - 0.5, torch.rand(4000) - 0.5]


def _features() -> list[Any]:
    return [torch.rand(4, 8), torch.rand(2, 6, 8), torch.rand(2, 8)]


def _spectra() -> list[Any]:
    return [torch.rand(2, 6, 8), torch.rand(6, 8)]


def _tokens() -> list[Any]:
    return [torch.randint(0, 8, (2, 4)), torch.randint(0, 8, (4,))]


def _dimensions() -> list[Any]:
    from whisper.model import ModelDimensions  # the library is there where it is asked for

    return [ModelDimensions(6, 4, 8, 2, 1, 51865, 8, 8, 2, 1)]


def _whisper() -> list[Any]:
    from whisper.model import Whisper

    return [Whisper(*_dimensions()).eval()]


def _numbers() -> list[Any]:
    return [torch.rand(2), torch.rand(()), torch.rand(2, 1), 0.5]


#: What parts of names say; the first that fits. Tensors and numbers alike.
BY_NAME: Final[tuple[tuple[str, Forms], ...]] = (
    ("mask", _masks),
    ("edge_index", lambda: _indices()[:1]),
    ("batch", lambda: [_indices()[1], None, 2]),
    ("index", lambda: [*_indices()[1:], _indices()[0]]),
    ("idx", lambda: _indices()[1:]),
    ("edge_attr", lambda: [torch.rand(6, 8), torch.rand(6)]),
    ("edge_weight", lambda: [torch.rand(6)]),
    ("box", _boxes),
    ("point", _points),
    ("keypoint", _points),
    ("pts", _points),
    ("matrix", _matrices),
    ("homography", _matrices),
    ("camera", _matrices),
    ("dst_", _matrices),
    ("src_", _matrices),
    ("_mat", _matrices),
    ("kernel_size", lambda: [3, (3, 3)]),
    ("sigma", lambda: [(1.5, 1.5), torch.tensor([[1.5, 1.5]]), 1.5]),
    ("size", lambda: [(16, 16), 4, 32]),
    ("shape", lambda: [(16, 16), (2, 3, 32, 32)]),
    ("label", _labels),
    ("target", lambda: [torch.randint(0, 3, (8,)), *_pictures(), *_labels()]),
    ("preds", lambda: [torch.rand(8, 3), *_pictures(), *_labels()]),
    ("n_mels", lambda: [6]),
    ("n_vocab", lambda: [16]),
    ("n_ctx", lambda: [4]),
    ("n_state", lambda: [8]),
    ("n_head", lambda: [2]),
    ("n_layer", lambda: [1]),
    ("tokens", _tokens),
    ("_fn", lambda: [torch.sigmoid]),
    ("device", lambda: [torch.device("cpu")]),
    ("wave", _sounds),
    ("audio", _sounds),
    ("mel", _spectra),
    ("sample_rate", lambda: [16000]),
    ("freq", lambda: [8000, 4, 440.0]),
    ("angle", _numbers),
    ("factor", _numbers),
    ("timestep", lambda: [torch.tensor([10, 20]), 10]),
    ("hidden_states", lambda: [torch.rand(2, 6, 32), torch.rand(2, 32, 8, 8)]),
    ("temb", lambda: [torch.rand(2, 32)]),
    ("channels", lambda: [3, 8, 32]),
    ("features", lambda: [8, 3]),
    ("num_classes", lambda: [3]),
    ("num_", lambda: [2, 4, 8]),
    ("dim", lambda: [8, 32, 2, 3]),
    ("in_", lambda: [8, 3]),
    ("out_", lambda: [8, 3]),
    ("heads", lambda: [2]),
    ("height", lambda: [32]),
    ("width", lambda: [32]),
)

#: What annotations say.
BY_KIND: Final[dict[str, Forms]] = {
    "Tensor": lambda: [*_pictures(), *_features(), *_points()],
    "int": lambda: [2, 8, 3, 16],
    "float": lambda: [0.5, 1.5],
    "bool": lambda: [True, False],
    "str": lambda: ["mean", "bilinear", "same", "constant"],
    "device": lambda: [torch.device("cpu")],
    "dtype": lambda: [torch.float32],
    "ModelDimensions": _dimensions,
    "Whisper": _whisper,
    "Type": lambda: [torch.nn.Linear],
    "Module": lambda: [torch.nn.Linear(8, 8), torch.nn.Identity()],
}


def _forms(parameter: inspect.Parameter, *, builds: bool) -> list[Any]:
    """Return what a parameter may get, the likeliest first; ``builds``: of a constructor."""
    annotated = parameter.annotation
    kind = annotated if isinstance(annotated, str) else getattr(annotated, "__name__", "")
    kind = kind if kind and kind != "_empty" else str(annotated)
    if "Callable" in kind:
        return [torch.sigmoid]
    forms = [make() for part, make in BY_NAME if part in parameter.name.lower()][:1]
    forms += [make() for name, make in BY_KIND.items() if name in kind]
    flat = [each for part in forms for each in part]
    if "Tensor" in kind and "int" not in kind and "float" not in kind:
        flat = [each for each in flat if isinstance(each, Tensor)]
    if builds:
        flat = [each for each in flat if not isinstance(each, Tensor)] or [8, 3, 2, 0.5]
    return flat or _pictures()


def _wanted(callable_: Any) -> list[inspect.Parameter]:
    """Return the parameters that have no default."""
    given = inspect.signature(callable_).parameters.values()
    flat = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        each
        for each in given
        if each.kind not in flat and each.default is inspect.Parameter.empty and each.name != "self"
    ]


def _combinations(
    parameters: list[inspect.Parameter], *, builds: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield arguments by name: first the likeliest form of each, then those further down."""
    forms = [_forms(each, builds=builds)[:6] for each in parameters[:6]]
    places = itertools.product(*(range(len(each)) for each in forms))
    for chosen in itertools.islice(sorted(places, key=sum), _TRIED):
        yield {
            each.name: form[place]
            for each, form, place in zip(parameters, forms, chosen, strict=False)
        }


def _instances(target: Any) -> Iterator[Any]:
    """Yield up to three instances of a class of modules, small and in evaluation."""
    number = 0
    for given in _combinations(_wanted(target.__init__), builds=True):
        try:
            built: Module = target(**given).eval()
        except Exception:
            continue  # whatever a constructor says means that this does not suit it
        if sum(each.numel() for each in built.parameters()) < 20_000_000:
            yield built
            number += 1
        if number == 3:
            return


def guessed_call(target: Any) -> Call:
    """Return a call that eager execution accepts.

    Raises:
        NoCall: none was found, with the last error.
    """
    end, last = monotonic() + _SECONDS, "no constructor fits"
    for called in _instances(target) if inspect.isclass(target) else [target]:
        function = called.forward if isinstance(called, Module) else called
        for given in _combinations(_wanted(function)):
            try:
                with warnings.catch_warnings(), torch.no_grad():
                    warnings.simplefilter("ignore")
                    Call(called, (), given, "guessed").copied().made()
            except Exception as error:
                last = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            else:
                return Call(called, (), given, "guessed")
            if monotonic() > end:
                raise NoCall(f"no call within {_SECONDS:.0f} s; last {last}")
    raise NoCall(last)
