"""Finds the class of a model that a configuration is for."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from transformers import CONFIG_MAPPING, MODEL_MAPPING, PreTrainedModel

__all__ = ["model_class", "model_types", "preload"]


def model_types() -> list[str]:
    """Return every type that transformers registers, each configuration class once."""
    first: dict[str, str] = {}
    for model_type in sorted(CONFIG_MAPPING.keys()):
        first.setdefault(_name_of(model_type), model_type)
    return sorted(first.values())


def _name_of(model_type: str) -> str:
    names: Any = getattr(CONFIG_MAPPING, "_mapping", {})
    return str(names.get(model_type, model_type))


def model_class(configuration: Any) -> Any:
    """Return the class that AutoModel takes, or the first of the module that can be called."""
    if type(configuration) in MODEL_MAPPING.keys():
        found = MODEL_MAPPING[type(configuration)]
        return found[0] if isinstance(found, (list, tuple)) else found
    for each in _classes_beside(type(configuration)):
        if each.config_class is type(configuration) and _is_callable(each):
            return each
    raise LookupError(f"no model of transformers takes a {type(configuration).__name__}")


def _classes_beside(configuration: type) -> Iterator[Any]:
    """Yield the models of the module beside that of a configuration, in its order."""
    name = configuration.__module__.replace("configuration_", "modeling_")
    module = importlib.import_module(name)
    for each in vars(module).values():
        if inspect.isclass(each) and issubclass(each, PreTrainedModel):
            if each.__module__ == name:
                yield each


def _is_callable(model: Any) -> bool:
    return "unimplemented" not in model.forward.__name__ and not inspect.isabstract(model)


def preload() -> None:
    """Import what nearly all models import, once, for the processes that are forked later."""
    for name in ("bart", "llama", "wav2vec2", "vit"):
        importlib.import_module(f"transformers.models.{name}.modeling_{name}")
