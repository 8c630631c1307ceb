"""Facts about callables of torch, Python and common libraries by name, all that bytecode shows.

Where a wrong guess could change a program, the traced code checks the object itself.
"""

from __future__ import annotations

import math
from typing import Final

#: Functions and methods that never return a tensor (or a number taken out of one).
NEVER_TENSOR_CALLS: Final = frozenset(
    """
    isinstance issubclass hasattr callable len id hash type iter repr format sorted
    is_grad_enabled is_inference_mode_enabled is_tracing is_scripting is_compiling is_exporting
    is_dynamo_compiling is_available is_autocast_enabled is_floating_point is_complex is_contiguous
    is_tensor is_cuda is_initialized is_torch_available is_torchdynamo_compiling
    is_flash_attn_2_available
    dim ndimension startswith endswith isdigit get_device keys items is_leaf
    is_parameter is_nested is_sparse
    """.split()
)

#: Attributes of tensors and modules that are never tensors.
NEVER_TENSOR_ATTRIBUTES: Final = frozenset(
    """
    shape dtype device ndim training requires_grad is_cuda is_leaf is_sparse is_quantized layout
    itemsize config
    """.split()
)

#: Context managers that let every exception pass.
NEVER_SWALLOWING: Final = frozenset(
    """
    no_grad enable_grad set_grad_enabled inference_mode autocast device stream record_function
    profile nullcontext sdpa_kernel sdp_kernel set_multithreading_enabled saved_tensors_hooks
    save_on_cpu disable_saved_tensors_hooks detect_anomaly set_detect_anomaly preserve_rng_state
    fork_rng range annotate
    """.split()
)

#: Methods of ``logging.Logger`` that write a record (``..._once`` and ``..._advice`` are added by
#: transformers to its loggers).
LOGGER_METHODS: Final = frozenset(
    """
    debug info warning warn error critical fatal exception log
    debug_once info_once warning_once error_once warning_advice
    """.split()
)

#: Functions of the ``logging`` module that write a record to the root logger.
LOGGING_FUNCTIONS: Final = LOGGER_METHODS & frozenset(
    "debug info warning warn error critical fatal exception log".split()
)

#: Functions of the ``warnings`` module that issue a warning.
WARNING_FUNCTIONS: Final = frozenset(["warn", "warn_explicit"])

#: Functions of the ``warnings`` module that say which warnings are shown from then on.
FILTER_FUNCTIONS: Final = frozenset(["simplefilter", "filterwarnings", "resetwarnings"])

#: Calls that Dynamo cannot make on tensors, or whose result has an unbacked size: an argument of
#: an output statement that makes one is evaluated when the record is delivered.
DEFERRED_ARGUMENT_CALLS: Final = frozenset(
    """
    item tolist numpy float int str repr bool format ascii round hex bin oct sorted sum min max
    join strip ljust rjust pformat dumps print
    exc_info format_exc format_exception format_exception_only
    nonzero argwhere masked_select unique unique_consecutive
    """.split()
)

#: Methods and functions that change nothing and return the same later for the same arguments: they
#: can be deferred with the number that is taken out of their result.
REPEATABLE_CALLS: Final = (
    DEFERRED_ARGUMENT_CALLS
    | NEVER_TENSOR_CALLS
    | frozenset(
        """
        abs all any argmax argmin clone count_nonzero cpu cumsum detach dict div exp flatten get
        getLogger getattr isfinite isinf isnan list log log10 map mean median mul norm numel permute
        pow prod range reshape select set size softmax sqrt square squeeze std sub to transpose
        tuple unique unsqueeze values var view zip enumerate long double half add amax amin
        """.split()
    )
)

#: Methods and functions of Python, torch, numpy and well-known libraries that do nothing but give a
#: value. Under any other name there may be a function of the program, which may do something.
SILENT_CALLS: Final = (
    REPEATABLE_CALLS
    | frozenset(
        name
        for kind in (str, bytes, int, float, complex, tuple, frozenset, math)
        for name in dir(kind)
    )
    | frozenset(
        """
        Counter Decimal Fraction OrderedDict bytearray bytes chr complex deepcopy divmod filter
        frozenset isoformat most_common ord reversed slice strftime timedelta total_seconds

        allclose argsort bfloat16 bincount cat clamp clip contiguous cosine_similarity cumprod
        diag diff dot element_size eq equal expand flip floor_divide ge gt histc histogram
        index_select inverse kthvalue le logical_and logical_not logical_or logsumexp lt
        masked_fill matmul mode multiply narrow nanmean nansum ne neg nelement new_tensor
        ones_like outer quantile reciprocal relu repeat roll rsqrt sigmoid sign sort stack
        swapaxes t take tensor topk trace tril triu unbind unfold vdot where zeros_like is_nonzero

        around array array2string array_repr array_str asanyarray asarray astype average corrcoef
        cov float16 float32 float64 int32 int64 linspace nanmax nanmin nanmedian nanstd nanvar
        percentile ptp ravel rint unravel_index
        """.split()
    )
)
