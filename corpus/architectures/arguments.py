"""Finds arguments that a model takes, from the names of its parameters and from its errors.

A parameter is known by its name; each has some forms to try, such as sound with and without a
dimension of channels. A call begins with what a model reads: text, a picture, features, sound, a
series. Where it fails and the error names another parameter, that one is given too; where it says
how many tokens of a picture it misses, the text gets so many.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from corpus.architectures.shrinking import VOCABULARY, WIDTH
from corpus.configured.sizes import Inputs, mask

LENGTH: Final = 12
TARGETS: Final = 7
#: How many calls are tried, and how often one is completed after an error.
_CALLS: Final = 48
_REPAIRS: Final = 8

_READ: Final = (
    ("input_ids", "attention_mask"),
    ("decoder_input_ids",),
    ("pixel_values",),
    ("pixel_values_videos",),
    ("input_features",),
    ("input_values",),
)
_SENSES: Final = (
    "pixel_values",
    "pixel_values_videos",
    "input_features",
    "input_values",
    "past_values",
    "inputs",
    "hidden_states",
)
#: What goes with a picture or with sound, where a model has a parameter for it.
_BESIDE: Final = (
    "image_grid_thw",
    "mm_token_type_ids",
    "feature_attention_mask",
    "input_features_mask",
)
#: What is given in place of something else, or for a loss.
_INSTEAD: Final = ("inputs_embeds", "encoder_outputs", "encoder_hidden_states", "labels")
_MISSES_TOKENS: Final = re.compile(r"features:?\D{0,12}(\d+)")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a configuration says about the sizes of what a model reads."""

    configuration: Any

    def number(self, *names: str, default: int) -> int:
        """Return the first number among options, here or in a configuration inside."""
        for name in names:
            for each in self._configurations():
                value = getattr(each, name, None)
                if isinstance(value, (list, tuple)) and value and type(value[0]) is int:
                    return int(value[0])
                if type(value) is int and value > 0:
                    return value
        return default

    def _configurations(self) -> Iterator[Any]:
        yield self.configuration
        for value in list(vars(self.configuration).values()):
            if hasattr(value, "model_type"):
                yield value

    @property
    def channels(self) -> int:
        """Channels of a picture."""
        return self.number("num_channels", "in_channels", "in_chans", default=3)

    @property
    def side(self) -> int:
        """Height and width of a picture."""
        return self.number("image_size", "img_size", default=32)


def _ids(length: int) -> Tensor:
    return torch.randint(4, VOCABULARY // 2, (2, length))


def _pictures(facts: Facts) -> list[Tensor]:
    channels, side = facts.channels, facts.side
    height, width = _image_size(facts.configuration) or (side, side)
    sizes = dict.fromkeys([(height, width), (64, 64), (128, 128), (224, 224)])
    flat = [torch.randn(2, channels, *size) for size in sizes]
    patches = torch.randn(2, 16, channels * facts.number("patch_size", default=8) ** 2)
    several = [torch.randn(2, 2, channels, side, side), patches, _patches(facts)]
    return [*flat, *several, torch.randn(2, 2, channels, 128, 128)]


def _image_size(configuration: Any) -> tuple[int, int] | None:
    value = getattr(configuration, "image_size", None)
    if isinstance(value, (list, tuple)) and len(value) == 2:
        return int(value[0]), int(value[1])
    return None


def _patches(facts: Facts) -> Tensor:
    """Return what models of grids read: sixteen patches of each of two pictures, one a row."""
    patch = facts.number("patch_size", default=8)
    times = facts.number("temporal_patch_size", default=1)
    return torch.randn(32, facts.channels * times * patch**2)


def _films(facts: Facts) -> list[Tensor]:
    frames = facts.number("num_frames", "frames_per_clip", default=4)
    size = (facts.channels, facts.side, facts.side)
    return [torch.randn(2, frames, *size), torch.randn(2, size[0], frames, *size[1:])]


def _features(facts: Facts) -> list[Tensor]:
    bands = facts.number(
        "num_mel_bins",
        "feature_size",
        "input_feat_per_channel",
        "feature_projection_input_dim",
        "hidden_size",
        default=80,
    )
    lengths = (64, 2 * facts.number("max_source_positions", default=128))
    flat = [
        shape
        for length in lengths
        for shape in (torch.randn(2, bands, length), torch.randn(2, length, bands))
    ]
    return [*flat, torch.randn(2, 1, 256, bands)]


def _sounds(facts: Facts) -> list[Tensor]:
    bands = facts.number("num_mel_bins", default=16)
    length = facts.number("max_length", default=64)
    return [
        torch.randn(2, 4000),
        torch.randn(2, 1, 4000),
        torch.randn(2, length, bands),
        torch.randn(2, 16, bands),
    ]


def _boxes(facts: Facts) -> list[Tensor]:
    corners = torch.randint(0, 60, (2, LENGTH, 2))
    whole = torch.cat([corners, corners + 3], dim=-1)
    eight = torch.rand(2, LENGTH, 8)
    return [whole, whole.float() / 100, eight]


def _series(facts: Facts) -> tuple[int, int, int]:
    """Return the length of the past, that of the future and the number of time features."""
    past = facts.number("context_length", "prediction_length", default=16)
    lags = getattr(facts.configuration, "lags_sequence", None) or [0]
    future = facts.number("prediction_length", default=4)
    return past + max(lags), future, facts.number("num_time_features", default=1)


def _past_values(facts: Facts) -> list[Tensor]:
    past = _series(facts)[0]
    channels = facts.number("num_input_channels", "input_size", default=1)
    return [torch.rand(2, past), torch.rand(2, past, channels)]


def _ones(shape: Sequence[int]) -> list[Tensor]:
    return [torch.ones(*shape, dtype=torch.long)]


def _of_series(
    shape: Callable[[int, int, int], tuple[int, ...]],
) -> Callable[[Facts], list[Tensor]]:
    return lambda facts: [torch.rand(2, *shape(*_series(facts)))]


def _grid(facts: Facts) -> list[Tensor]:
    return [torch.tensor([[1, 4, 4], [1, 4, 4]])]


def _floats(*names: str, length: int = 5, default: int = 16) -> Callable[[Facts], list[Tensor]]:
    return lambda facts: [torch.randn(2, length, facts.number(*names, default=default))]


#: The forms of each argument to try, by its name, the likeliest first.
FORMS: Final[Mapping[str, Callable[[Facts], list[Tensor]]]] = {
    "input_ids": lambda facts: [_ids(LENGTH)],
    "attention_mask": lambda facts: [mask(LENGTH)],
    "decoder_input_ids": lambda facts: [
        _ids(TARGETS),
        torch.randint(0, 16, (2, TARGETS, facts.number("num_channels", default=9))),
    ],
    "decoder_attention_mask": lambda facts: _ones((2, TARGETS)),
    "token_type_ids": lambda facts: [torch.zeros(2, LENGTH, dtype=torch.long)],
    "mm_token_type_ids": lambda facts: [torch.zeros(2, LENGTH, dtype=torch.long)],
    "bbox": _boxes,
    "pixel_values": _pictures,
    "pixel_mask": lambda facts: _ones((2, facts.side, facts.side)),
    "pixel_attention_mask": lambda facts: [*_ones((2, 16)), *_ones((2, 32, 32))],
    "spatial_shapes": lambda facts: [torch.full((2, 2), 4)],
    "pixel_values_videos": _films,
    "pixel_values_images": _pictures,
    "prompt_pixel_values": _pictures,
    "prompt_masks": _pictures,
    "image_embeds_position_mask": lambda facts: [torch.arange(LENGTH).lt(4).expand(2, -1).clone()],
    "image_grid_thw": _grid,
    "grid_thw": _grid,
    "target_sizes": lambda facts: [torch.full((2, 2), 32)],
    "image_sizes": lambda facts: [torch.full((2, 2), facts.side)],
    "hidden_states": lambda facts: [
        _patches(facts),
        torch.randn(2, LENGTH, facts.number("hidden_size", "d_model", default=64)),
        torch.randn(2, facts.number("embed_dim", default=8), 16, 16),
    ],
    "inputs_embeds": _floats("hidden_size", "d_model", length=LENGTH, default=64),
    "query_embeds": _floats("hidden_size", length=8, default=64),
    "encoder_hidden_states": _floats("encoder_hidden_size", "hidden_size", default=64),
    "encoder_outputs": _floats("hidden_size", "d_model", default=64),
    "action_embeds": _floats("hidden_size", default=64),
    "qformer_input_ids": lambda facts: [_ids(LENGTH)],
    "class_labels": lambda facts: _ones((2, 4)),
    "input_features": _features,
    "input_values": _sounds,
    "audio_values": _sounds,
    "audio_codes": lambda facts: [
        torch.randint(0, 16, (2, LENGTH, 8)),
        torch.randint(0, 16, (2, 8, LENGTH)),
    ],
    "padding_mask": lambda facts: _ones((2, 4000)),
    "input_features_mask": lambda facts: _ones((2, 64)),
    "feature_attention_mask": lambda facts: _ones((2, 64)),
    "audio_mel_mask": lambda facts: [torch.zeros(2, 64, dtype=torch.bool)],
    "audio_mel": _floats("input_feat_size", length=64, default=128),
    "spectrogram": _floats("num_mel_bins", "model_in_channels", length=32, default=80),
    "visual_feats": _floats("visual_feat_dim", default=16),
    "visual_pos": _floats("visual_pos_dim", default=4),
    "visual_embeds": _floats("visual_embedding_dim", default=16),
    "flattened_patches": lambda facts: [
        torch.cat([torch.ones(2, 16, 2), torch.randn(2, 16, 768)], dim=-1)
    ],
    "inputs": lambda facts: [
        torch.randn(2, 16, facts.number("d_model", default=64)),
        _ids(LENGTH),
    ],
    "states": _floats("state_dim", default=17),
    "actions": _floats("act_dim", default=4),
    "rewards": lambda facts: [torch.randn(2, 5, 1)],
    "returns_to_go": lambda facts: [torch.randn(2, 5, 1)],
    "timesteps": lambda facts: [torch.arange(5).expand(2, -1).clone()],
    "past_values": _past_values,
    "past_time_features": _of_series(lambda past, future, features: (past, features)),
    "past_observed_mask": lambda facts: [torch.ones_like(each) for each in _past_values(facts)],
    "future_values": _of_series(lambda past, future, features: (future,)),
    "future_time_features": _of_series(lambda past, future, features: (future, features)),
    "static_categorical_features": lambda facts: [torch.zeros(2, 1, dtype=torch.long)],
    "static_real_features": lambda facts: [torch.randn(2, 1)],
    "input_points": lambda facts: [torch.rand(2, 1, 2, 2) * 16],
    "labels": lambda facts: [_ids(LENGTH)],
    "speaker_embeddings": _floats("speaker_embedding_dim", length=1, default=64),
    "decoder_input_values": lambda facts: [
        torch.randn(2, 8, facts.number("num_mel_bins", default=80))
    ],
    "pixel_values_mask": lambda facts: _ones((2, 32, 32)),
}


def found_arguments(
    parameters: Mapping[str, Any], configuration: Any, call: Callable[[Inputs], object]
) -> Inputs:
    """Return arguments with which ``call`` does not raise, or raise its first error."""
    first: Exception | None = None
    for given in itertools.islice(_calls(parameters, Facts(configuration)), _CALLS):
        try:
            return _repaired(given, parameters, Facts(configuration), call)
        except Exception as error:
            # a model refuses arguments with any exception; the next call is another attempt
            first = first or error
    raise first or LookupError(f"no known parameter among {', '.join(parameters)}")


def _calls(parameters: Mapping[str, Any], facts: Facts) -> Iterator[Inputs]:
    """Yield calls to begin with: all that a model can read, then less of it."""
    needed = [
        name
        for name, each in parameters.items()
        if getattr(each, "default", None) is getattr(each, "empty", "") and name in FORMS
    ]
    for names in _groups(parameters):
        chosen = list(dict.fromkeys([*names, *needed]))
        forms = [FORMS[name](facts) for name in chosen]
        for number in range(max(map(len, forms), default=0)):
            yield _fitting(
                {
                    name: each[min(number, len(each) - 1)].clone()
                    for name, each in zip(chosen, forms, strict=True)
                }
            )


def _fitting(given: Inputs) -> Inputs:
    """Return a call whose mask has an item for each patch of pictures that are cut up.

    A model that finds all of a mask set may look at it no further, and so take one of other sizes;
    not where it is compiled.
    """
    pictures = given.get("pixel_values")
    if pictures is None or pictures.dim() != 3 or "pixel_attention_mask" not in given:
        return given
    return given | {"pixel_attention_mask": torch.ones(pictures.shape[:2], dtype=torch.long)}


def _groups(parameters: Mapping[str, Any]) -> Iterator[list[str]]:
    texts = [name for group in _READ[:2] for name in group if name in parameters]
    if "input_ids" not in parameters:
        texts = [name for name in texts if name != "attention_mask"]
    senses = [name for name in _SENSES if name in parameters]
    beside = [name for name in _BESIDE if name in parameters]
    if senses and texts and beside:
        yield [*texts, senses[0], *beside]
    for name in senses if texts else ():
        yield [*texts, name]
    if "decoder_input_ids" in texts:
        yield from (["decoder_input_ids", name] for name in senses)
    yield from ([name] for name in senses)
    if texts:
        yield texts
        yield [name for name in texts if name != "attention_mask"]
    yield []
    apart = _INSTEAD if texts else (*_INSTEAD, "attention_mask")
    yield [name for name in FORMS if name in parameters and name not in apart]


def _repaired(
    given: Inputs, parameters: Mapping[str, Any], facts: Facts, call: Callable[[Inputs], object]
) -> Inputs:
    """Call, and give what the error names, until the call succeeds or names nothing new."""
    for _ in range(_REPAIRS):
        try:
            call(given)
            return given
        except Exception as error:
            text = str(error)
            more = _with_tokens(given, facts, text) or _with_named(given, parameters, facts, text)
            if more is None:
                raise
            given = more
    call(given)
    return given


def _with_named(
    given: Inputs, parameters: Mapping[str, Any], facts: Facts, text: str
) -> Inputs | None:
    words = dict.fromkeys(re.findall(r"\w+", text))
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        # what a model inside asks for, this one hands on
        known = {*parameters, *re.findall(r"`(\w+)`", text)}
    else:
        known = {*parameters}
    new = [each for each in words if each in known and each in FORMS and each not in given]
    return given | {name: FORMS[name](facts)[0] for name in new} if new else None


def _with_tokens(given: Inputs, facts: Facts, text: str) -> Inputs | None:
    """Return the call with as many tokens of a picture or sound as an error says that it needs."""
    found = _MISSES_TOKENS.search(text)
    if found is None or "token" not in text or "input_ids" not in given:
        return None
    names = ("video_", "audio_", "image_") if "ideo" in text else ("image_", "audio_")
    options = [prefix + end for prefix in names for end in ("token_id", "token_index")]
    token = facts.number(*options, default=0)
    ids = _ids(LENGTH)
    total = int(found.group(1))
    # some count numbers where others count vectors
    count = total // (2 * WIDTH) if total % (2 * WIDTH) == 0 else total // 2
    if not token or not 0 < count < 400 or token in given["input_ids"]:
        return None
    picture = torch.full((2, count), token)
    tokens = torch.cat([ids[:, :2], picture, ids[:, 2:]], dim=1)
    return given | {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
