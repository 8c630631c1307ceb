"""Makes a small configuration of any class of transformers, by what its options are called.

An option that is a number is cut by the first rule whose pattern its name has. Lists of widths, as
in convolutional models, are cut number by number with one monotone function, so that numbers that
were equal stay equal. Configurations inside a configuration are made small in the same way. Dropout
and layer drop are on wherever there is an option for them.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from transformers import CONFIG_MAPPING, PretrainedConfig

from corpus.configured.sizes import DROPOUT, LAYER_DROP

VOCABULARY: Final = 128
WIDTH: Final = 64
HEADS: Final = 4
HEAD_WIDTH: Final = WIDTH // HEADS
#: Numbers of layers to try, fewest first: a model may need one layer of each of its kinds.
DEPTHS: Final = (2, 4, 8)
_DEEPEST: Final = 4
_LAYERS: Final = "layers"

#: What the name of an option says about its largest value, the first pattern first.
_LIMITS: Final[tuple[tuple[re.Pattern[str], int | str], ...]] = tuple(
    (re.compile(pattern), limit)
    for pattern, limit in (
        (r"(.*_)?vocab(ulary)?_size|n_vocab|codebook_size", VOCABULARY),
        (r"(.*num_|n_|.*_)?layers?|(resampler_)?depth|num_blocks|n_embed_layers", _LAYERS),
        (r".*(num_key_value_heads|num_kv_heads|n_head_kv)", 2),
        (r"(.*_)?(n_head|n_heads|num_heads|attention_heads|num_attention_heads|attn_heads)", HEADS),
        (r"linear_num_(key|value)_heads", 2),
        (r"qk_head_dim", 2 * HEAD_WIDTH),
        (r"(.*_)?(head_dim|d_kv|d_head|dim_head|attention_head_size|rotary_dim)", HEAD_WIDTH),
        (r"(kv|q|laurel)_(lora_)?rank", HEAD_WIDTH),
        (r"(.*_)?num_experts_per_tok|moe_k|moe_topk|topk_group|.*shared_experts", 2),
        (r"n_group", 2),
        (r"(.*_)?(num_experts|num_local_experts|n_routed_experts)", 4),
        (r"zero_expert_num", 2),
        (r"(.*max_|original_max_|.*_max_).*position(s|_embeddings)|n_positions|n_ctx", 256),
        (r"max_seq_len|seq_length|max_text_len|max_ep_len", 256),
        (r"(pretrain_)?image_size|crop_size", 32),
        (r"patch_size", 8),
        (r"(sliding|attention)_window(_size)?|sliding_window", 8),
        (r"chunk_size|mamba_chunk_size|attention_chunk_size", 8),
        (r"num_mel_bins|feature_size", 16),
        (r".*(intermediate_size|ffn_dim|d_ff|mlp_dim|n_inner|ffn_hidden_size|linear_units)", 128),
        (r"dim_feedforward|.*_dim_feedforward|d_inner|.*feed_forward_size", 128),
        (r"(.*_)?(hidden_size|d_model|n_embd|embed_dim|hidden_dim|emb_dim|d_embed)", WIDTH),
        (r"(.*_)?(projection_dim|embedding_size|project_dim|word_embed_proj_dim)", WIDTH),
        (r"dim|d_latents|query_dim|descriptor_dim|lru_width|projector_hidden_size", WIDTH),
        (r"mask_feature_size|fpn_feature_size|fusion_hidden_size|mask_dim|conv_dim", WIDTH),
        (r".*num_query_tokens|num_latents|num_queries|two_stage_num_proposals", 8),
        (r"visual_feat_dim|input_feat_per_channel", 16),
        (r"num_conv_pos_embeddings", 8),
        (r"num_conv_pos_embedding_groups", 2),
        (r"mask_time_length|mask_feature_length", 4),
        (r".*upsample_groups", 2),
    )
)
_REPEATS: Final = re.compile(r"depths?|.*num_layers|.*repeats|.*num_blocks|blocks_per_stage")
_MANY_HEADS: Final = re.compile(r".*heads(_per_stage)?")
_WIDTHS: Final = re.compile(r".*(sizes|dims?|channels|channel_list|embed_dim_per_stage|embed_dims)")
_NO_WIDTHS: Final = re.compile(r".*(kernel|window|block|patch|image|vocab|shape|stride|feat).*")
_DROPOUT: Final = re.compile(r".*(dropout|pdrop|drop_path|droppath|drop_rate).*")
_LAYER_DROP: Final = re.compile(r"(.*_)?layerdrop")
_TOKEN: Final = re.compile(r".*(token_id|token_index|_id|_index)")
#: Token ids that texts do not have: models read them as the place of a picture, or as padding.
_FIRST_SPECIAL: Final = VOCABULARY // 2
_SMALL_IDS: Final = {
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}

#: Options without which a model cannot be built, and whose default is None or nothing.
_NEEDED: Final = {
    "prediction_length": 4,
    "num_time_features": 1,
    "num_experts_per_tok": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "pad_token_id": 1,
    "mask_token_id": 3,
    "vocab_size": VOCABULARY,
}

#: The parts of configurations that have none by themselves.
_PARTS: Final[Mapping[str, Mapping[str, str]]] = {
    "encoder-decoder": {"encoder": "bert", "decoder": "bert"},
    "vision-encoder-decoder": {"encoder": "vit", "decoder": "bert"},
    "nougat": {"encoder": "vit", "decoder": "bert"},
    "speech-encoder-decoder": {"encoder": "wav2vec2", "decoder": "bert"},
    "vision-text-dual-encoder": {"vision_config": "vit", "text_config": "bert"},
    "musicgen": {"text_encoder": "t5", "audio_encoder": "encodec", "decoder": "musicgen_decoder"},
    "musicgen_melody": {
        "text_encoder": "t5",
        "audio_encoder": "encodec",
        "decoder": "musicgen_melody_decoder",
    },
    "rag": {"question_encoder": "dpr", "generator": "bart"},
}
_DECODING: Final = {"is_decoder": True, "add_cross_attention": True}
_BACKBONE: Final[Mapping[str, Any]] = {
    "model_type": "resnet",
    "embedding_size": 16,
    "hidden_sizes": [16, 16, 32, 32],
    "depths": [1, 1, 1, 1],
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
}


def small_configurations(model_type: str) -> Iterator[Any]:
    """Yield small configurations of a registered type, the smallest first."""
    for depth in DEPTHS:
        for make in (_constructed, _with_lists, _cut_afterwards):
            try:
                yield make(model_type, depth)
            except Exception as error:
                # what a configuration refuses, the next one may not; the caller tells the reason
                yield error


def _constructed(model_type: str, depth: int) -> Any:
    """Make a configuration of small options, which derives the others of them."""
    return _class_of(model_type)(**options_of(model_type, depth))


def _with_lists(model_type: str, depth: int) -> Any:
    """Make a configuration that keeps the widths of its stages, where other sizes follow them."""
    configuration = _class_of(model_type)
    declared = _declared(configuration)
    if not _has_width_lists(declared):
        raise ValueError("no lists of widths")
    options = options_of(model_type, depth)
    kept = {
        name
        for name, value in declared.items()
        if _is_list_of_widths(name, value) or _is_width(name, value)
    }
    return configuration(**{name: value for name, value in options.items() if name not in kept})


def _cut_afterwards(model_type: str, depth: int) -> Any:
    """Make the default configuration and set its options, where those derived are no obstacle."""
    configuration = _class_of(model_type)(**_parts(model_type, depth))
    _cut(configuration, depth, _DEEPEST)
    return configuration


def _class_of(model_type: str) -> Any:
    return CONFIG_MAPPING[model_type]


def options_of(model_type: str, depth: int) -> dict[str, Any]:
    """Return the options that make a small configuration of a type."""
    return _options(_class_of(model_type), depth, _DEEPEST) | _parts(model_type, depth)


def _parts(model_type: str, depth: int) -> dict[str, Any]:
    parts = {}
    for name, inner in _PARTS.get(model_type, {}).items():
        options = {"model_type": inner} | options_of(inner, depth)
        parts[name] = options | (_DECODING if name == "decoder" else {})
    return parts


def _options(configuration: Any, depth: int, left: int) -> dict[str, Any]:
    """Return small values of the options that a class declares, and what is inside it."""
    declared = _declared(configuration)
    scales = _has_width_lists(declared)
    found: dict[str, Any] = {}
    for name, value in declared.items():
        cut = small_value(name, value, depth, scales=scales) or _NEEDED.get(name, value)
        if cut != value:
            found[name] = cut
    if declared.get("num_key_value_heads") == declared.get("num_attention_heads", ""):
        found["num_key_value_heads"] = found.get("num_attention_heads", HEADS)
    if left:
        found |= _inner(configuration, depth, left - 1)
    return found


def _inner(configuration: Any, depth: int, left: int) -> dict[str, Any]:
    try:
        default = configuration()
    except Exception:
        # one that is no configuration without its parts, or that needs a library: nothing is inside
        return _backbone(_declared(configuration))
    found: dict[str, Any] = {}
    for name, value in vars(default).items():
        if isinstance(value, PretrainedConfig):
            inner = _options(type(value), depth, left) if left else {}
            found[name] = _BACKBONE | {} if _is_of_timm(value) else _typed(value) | inner
        elif name in ("rope_parameters", "rope_scaling") and isinstance(value, dict):
            found[name] = _rotary(value)
    return found | (_backbone(vars(default)) if "backbone_config" not in found else {})


def _typed(value: Any) -> dict[str, Any]:
    return {"model_type": value.model_type} if value.model_type in CONFIG_MAPPING else {}


def _is_of_timm(value: Any) -> bool:
    return str(value.model_type).startswith("timm")


def _backbone(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a small backbone for a configuration that would take a trained one by its name."""
    if values.get("backbone_config", "") is not None:
        return {}
    found: dict[str, Any] = {"backbone_config": dict(_BACKBONE)}
    plain = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    return found | {name: value for name, value in plain.items() if name in values}


def _rotary(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of rotary embeddings whose sections fill a small head."""
    half = HEAD_WIDTH // 2
    share = parameters.get("partial_rotary_factor") or 1.0
    if any(isinstance(value, dict) for value in parameters.values()):
        return parameters
    quarter = max(1, int(half * share) // 4)
    sections = [int(half * share) - 2 * quarter, quarter, quarter]
    return parameters | {"mrope_section": sections}


def _declared(configuration: Any) -> dict[str, Any]:
    """Return the options of a class with their defaults."""
    if dataclasses.is_dataclass(configuration):
        return {
            field.name: _default(field) for field in dataclasses.fields(configuration) if field.init
        }
    parameters = inspect.signature(configuration).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _has_width_lists(values: Mapping[str, Any]) -> bool:
    return any(_is_list_of_widths(name, value) for name, value in values.items())


def _is_list_of_widths(name: str, value: Any) -> bool:
    is_list = isinstance(value, (list, tuple)) and bool(value)
    numbers = is_list and all(type(each) is int for each in value)
    return numbers and bool(_WIDTHS.fullmatch(name)) and not _NO_WIDTHS.fullmatch(name)


def _is_width(name: str, value: Any) -> bool:
    return type(value) is int and _limit(name) in (WIDTH, 2 * WIDTH)


def _limit(name: str) -> int | str | None:
    """Return the limit of the first pattern that a name has."""
    found = (limit for pattern, limit in _LIMITS if pattern.fullmatch(name))
    return next(found, None)


def small_value(name: str, value: Any, depth: int, *, scales: bool = False) -> Any:
    """Return what an option gets; ``scales``: widths are cut in proportion, not to one size."""
    if type(value) is int:
        return _small_number(name, value, depth, scales=scales)
    if isinstance(value, float) or value is None:
        return _probability(name, value)
    if isinstance(value, (list, tuple)) and value and all(type(each) is int for each in value):
        return type(value)(_small_list(name, list(value)))
    return value


def _small_number(name: str, value: int, depth: int, *, scales: bool) -> int:
    if _TOKEN.fullmatch(name):
        return _token(name, value)
    limit = _limit(name)
    if limit is None:
        return value
    if isinstance(limit, str):
        return min(value, depth)
    return scaled(value) if scales and limit in (WIDTH, 2 * WIDTH) else min(value, limit)


def _token(name: str, value: int) -> int:
    """Return a token id that a small vocabulary has, which is the same wherever it is named so."""
    if value < _FIRST_SPECIAL:
        return value
    if name in _SMALL_IDS:
        return _SMALL_IDS[name]
    return _FIRST_SPECIAL + sum(map(ord, name)) % (VOCABULARY - _FIRST_SPECIAL - 1)


def scaled(width: int) -> int:
    """Return an eighth of a width, but no less than 16 where it was more."""
    return width if width <= 16 else max(16, width // 8 // 8 * 8)


def _probability(name: str, value: float | None) -> float | None:
    if value is None or not 0.0 <= value < 1.0:
        return value
    if _LAYER_DROP.fullmatch(name):
        return LAYER_DROP
    return DROPOUT if _DROPOUT.fullmatch(name) else value


def _small_list(name: str, numbers: list[int]) -> list[int]:
    if _REPEATS.fullmatch(name):
        return [min(each, 1) for each in numbers]
    if _MANY_HEADS.fullmatch(name):
        return [min(each, 2) for each in numbers]
    if name == "image_size":
        return [min(each, 32) for each in numbers]
    return [scaled(each) for each in numbers] if _is_list_of_widths(name, numbers) else numbers


def _cut(configuration: Any, depth: int, left: int) -> None:
    """Set the options of a configuration that is already made, and of those inside it."""
    values = {name: value for name, value in vars(configuration).items() if name[0] != "_"}
    scales = _has_width_lists(values)
    for name, value in values.items():
        if isinstance(value, PretrainedConfig) and left:
            _cut(value, depth, left - 1)
        elif name == "layer_types" and isinstance(value, list):
            configuration.layer_types = value[:depth]
        else:
            cut = small_value(name, value, depth, scales=scales)
            if cut != value:
                setattr(configuration, name, cut)
