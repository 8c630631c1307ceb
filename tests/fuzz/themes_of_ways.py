"""Themes about sides with nothing in common, ways out of blocks, what stands before a check."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates

APART: Final = Theme(
    "sides with nothing in common",
    {
        "apart": (
            "(None if {data} else {vector})",
            "({vector} if {data} else None)",
            "({vector} if {data} else 'text')",
            "((1, {vector}) if {data} else None)",
            "([{vector}] if {data} else ())",
            "({text} if {data} else {int})",
            "({vector} if {data} else {matrix})",
            "({vector} if {data} else {vector}.double())",
            "({vector} if {data} else {vector}[{mask}])",
            "(None if {data} else (None if {data} else {vector}))",
            "({'a': {vector}} if {data} else [{vector}])",
            "({box} if {data} else None)",
            "(print if {data} else {vector})",
            "either_or_none({vector})",
        ),
        "held": (
            "{apart}",
            "[{apart}, {int}]",
            "({apart}, {apart})",
            "({vector}, ({int}, {apart}))",
            "{'k': {apart}, 'v': {vector}}",
            "{'k': [{apart}], 2: ({apart},)}",
            "point({apart}, {vector})",
            "collections.deque([{apart}, {int}], maxlen=3)",
            "Pairing({apart}, {vector})",
            "Pairing([{apart}], point({apart}, 1))",
            "types.SimpleNamespace(value={apart})",
            "Box({apart})",
            "[Pairing({vector}, {apart})]",
            "collections.OrderedDict(k={apart})",
            "slice({int}, {apart})",
        ),
        "plain": ("{apart} is None", "isinstance({apart}, torch.Tensor)"),
    },
    templates(
        r"""
return {held}

return {held}, {vector}

outcome = {held}
<block>
return outcome, {vector}

outcome = {apart}
if outcome is None:
    {v:=vector} = {v} + 1
elif isinstance(outcome, torch.Tensor):
    {v} = {v} + outcome.sum()
else:
    print('else', type(outcome).__name__)

{box}.value = {held}
{box}.count = {apart}

{list}.append({apart})

{table}['k'] = {held}

settings.rate = {apart}
settings.calls = {held}

keeper = Keeper({vector})
if {data}:
    keeper.extra = {apart}
    {box}.extra = {vector}
else:
    keeper.kept = {apart}
print(hasattr({box}, 'extra'), getattr(keeper, 'extra', 'none') is None)
return keeper, {held}

if {data}:
    {table}['e'] = {apart}
elif {data}:
    {table}.pop('a')
{v:=vector} = {v} + {table}['b']
print('e' in {table}, {table}.get('c') is None)

if {data}:
    {table}['b'] = {vector}
{table}['f'] = {table}['b'] + 1
{v:=vector} = {v} + {table}.get({text}, {vector})

outcome = [{held}, {apart}]
outcome.append({apart})
del outcome[0]
return outcome, len(outcome)

outcome = Pairing({vector}, {apart})
if {data}:
    outcome.second = {apart}
return outcome

print({apart} is None, {apart})

def inner(v):
    if {data}:
        return None
    return {held}
return inner({vector}), {vector}

*rest, last = {vector}, {apart}, {apart}
return rest, last

for each in ({apart}, {apart}):
    if each is not None:
        print(type(each).__name__)
        break
else:
    {v:=vector} = {v} * 2
"""
    ),
)
WAYS_OUT: Final = Theme(
    "ways out of blocks",
    {
        "leaving": (
            "break",
            "continue",
            "break",
            "continue",
            "return {vector}",
            "return w",
            "raise ValueError('left', i)",
            "i = i + 5",
            "w = {vector}",
            "pass",
        ),
        "asked": (
            "{data}",
            "{data}",
            "{data} and {data}",
            "{data} or {bool}",
            "not {data}",
            "i > 0",
        ),
        "walk": (
            "range(2)",
            "range(3)",
            "range({mask}.sum().item())",
            "range({int})",
            "(0, 2)",
            "torch.nonzero({mask}).flatten().tolist()",
        ),
    },
    templates(
        r"""
# behind w:vector
w = {vector}
for i in {walk}:
    if {asked}:
        if {asked}:
            {leaving}
        w = w + i
    elif {asked}:
        {leaving}
    w = w * 2

# behind w:vector
w = {vector}
for i in {walk}:
    if {asked}:
        {leaving}
    w = w + 1
    if {asked}:
        {leaving}
else:
    w = w - 3

# behind w:vector
w = {vector}
for i in {walk}:
    for k in range(2):
        if {asked}:
            {leaving}
        w = w + k
    else:
        continue
    if {asked}:
        {leaving}
    w = w * 2

# behind w:vector
w = {vector}
for i in {walk}:
    try:
        if {asked}:
            {leaving}
        w = w + require(w)
    except ValueError as error:
        if {asked}:
            {leaving}
        w = w - 1
    finally:
        w = w * 0.5

# behind w:vector
w = {vector}
for i in {walk}:
    with torch.no_grad():
        if {asked}:
            {leaving}
        w = w + 1
    with managed('way'):
        if {asked}:
            {leaving}

# behind w:vector
i, w = 0, {vector}
while i < 3:
    i += 1
    if {asked}:
        {leaving}
    elif {asked}:
        if {asked}:
            {leaving}
        w = w * i
    w = w + 1

# behind w:vector
i, w = 0, {vector}
while w.abs().sum() < 30 and i < 4:
    i += 1
    w = w.abs() * 2 + 1
    if {asked}:
        {leaving}

# behind w:vector
i, w = 1, {vector}
if {asked}:
    fresh = {vector}
    if {asked}:
        return fresh
    w = fresh * 2
elif {asked}:
    other = {vector}
    if {asked}:
        raise ValueError('other', i)
    w = other + 1
else:
    if {asked}:
        return None

# behind w:vector
def leave(v, i=1):
    for i in {walk}:
        if {asked}:
            return v * i
        if {asked}:
            break
    else:
        return v + i
    return {vector}
w = leave({vector}) + leave({vector})
"""
    ),
)
BEFORE_CHECKS: Final = Theme(
    "what stands before a check inside the graph",
    {
        "effect": (
            "{box}.count += 1",
            "{box}.count = {int}",
            "{box}.value = {vector}",
            "global_count.append({int})",
            "global_count[:] = [1, {int}]",
            "{list}.append({vector})",
            "settings.rate = {float}",
            "settings.calls += 1",
            "settings.calls = {mask}.sum().item()",
            "{table}['e'] = {vector}",
            "shared_norm(torch.stack([{vector}, {vector} + 1]))",
            "queue.append({int})",
            "print({vector})",
            "print('weight', shared_norm.weight, {vector} * 2)",
            "logger.info('%s', {vector} * shared_norm.weight)",
            "codec.stride.add_(1)",
            "codec.ratio.mul_({float})",
            "x.add_({int})",
            "x.mul_({vector}.detach())",
            "x[0] = {float}",
            "pass",
        ),
        "refusal": (
            "require({vector})",
            "assert {data}, 'refused'",
            "assert {data}",
            "bounded({vector}, 9.0)",
            "torch._check(bool({data}), lambda: 'refused')",
            "torch._assert({data}, 'refused')",
            "print('told', {vector}.sum().item())",
        ),
        "setting": (
            "torch.no_grad()",
            "torch.enable_grad()",
            "torch.set_grad_enabled({bool})",
            "torch.autocast('cpu', dtype=torch.bfloat16)",
            "torch.autocast('cpu', dtype=torch.float16)",
            "torch.autocast('cpu', dtype=torch.bfloat16, enabled={bool})",
            "torch.autocast('cpu', enabled=False)",
            "torch.inference_mode({bool})",
        ),
        "shown": (
            "{vector}",
            "{vector} * 2",
            "({matrix} @ torch.ones(3, 3))",
            "({vector} @ {vector})",
            "{vector}.requires_grad",
            "f'''{{vector}.sum().item():.2f}'''",
            "nn.Parameter({vector}.detach())",
            "shared_norm.weight",
            "torch.is_grad_enabled()",
            "{vector}.detach().requires_grad_()",
        ),
    },
    templates(
        r"""
{effect}
{refusal}

{effect}
{effect}
{refusal}
{v:=vector} = {v} * 2

{effect}
if {data}:
    raise ValueError('behind an effect')

if {data}:
    {effect}
    {refusal}

try:
    {effect}
    {refusal}
except (ValueError, AssertionError, RuntimeError):
    {effect}

with {setting}:
    print({shown}, {shown})
    {refusal}

with {setting}:
    if {data}:
        logger.info('shown %s', {shown})
    {v:=vector} = {v} * 2

with {setting}, {setting}:
    print(({matrix} @ torch.ones(3, 3)).dtype, {shown})
    if {data}:
        raise ValueError('under a setting', {shown})

with {setting}:
    <block>
    warnings.warn(f'''shown {{shown}}''')

print({shown})
{v:=vector} = {v} + 1
print({shown}, {v}, {shown})

print([{shown}, ({shown},)], {'k': {shown}})

for i in range(2):
    {effect}
    if {data}:
        raise RuntimeError('turn', i)
"""
    ),
    gradients=True,
)
