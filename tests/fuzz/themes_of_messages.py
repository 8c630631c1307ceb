"""Themes about what messages show: histories, objects that change, texts that are put together."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import TEXT, VECTOR

HISTORIES: Final = Theme(
    "histories of tensors that are shown",
    {VECTOR: ("torch.tanh({vector})", "{vector} * filled.own")},
    templates(
        r"""
print(<{vector} * 2|{vector}.sum()|torch.relu({vector})|{vector}[0]|{vector}.detach()>)

print(<{vector}|{matrix}|filled.own|{list}|filled.own * 1|filled.own.detach()>, {int})

shown_now = {vector} * 2
print(shown_now<|.exp()|.view(3)|[1:]>, {'n': shown_now})
{v:=vector} = {v} + shown_now

logger.info('%s and %s', <{vector} + 1|{vector}.mean()|[{vector}]>, {vector}.requires_grad)

if {data}:
    print(<{vector} * 2|{vector}.sum()|filled.own|{vector}>)
else:
    logger.warning('%r', {vector}.abs())

leaf = torch.<ones(3)|zeros(2)|rand(())>.requires_grad_()
print(leaf, <leaf * {vector}.sum()|leaf.sum()|leaf.grad_fn>)

print(f'''<{{vector} * 2}|{{vector}}|{filled.own}> {{int}}''')

with torch.no_grad():
    print({vector} * 2, <filled.own|{vector}|{vector}.clone()>)

try:
    raise ValueError(<{vector} * 2|{vector}.sum()|{vector}.detach()>)
except ValueError as error:
    <print(error)|logger.exception('shown')|print(error.args)>

print(str({vector} * 2) + {text}, <repr({vector}.sum())|'%s' % ({vector} + 1)|{vector}.shape>)
"""
    ),
    gradients=True,
)
OBJECTS_SHOWN: Final = Theme(
    "objects that are shown and change",
    {},
    templates(
        r"""
print(owner)
<owner.n = {int}|owner.parts.append({int})|owner.names['z'] = 1|owner.kinds.add({int})>
<print(owner)|logger.info('%s', owner)|{v:=vector} = {v} * owner.n>

logger.info(<'%s', owner|'%s %s', owner, owner.n|f'''{owner}'''>)
<owner.recent.append({int})|owner.inner.n = {int}|owner.weight.add_(1)|
    owner.weight = owner.weight * 2>
print(owner<|, {int}|.n>)

print('before', <[owner]|{'o': owner}|(owner, {int})|{'o': owner}.values()>)
if {data}:
    <owner.n += 1|owner.parts = [{int}]|owner.parts.append(1)|owner.names.pop('a', None)>
print('behind', owner)

print(slotted)
<slotted.n = {int}|slotted.held.append({int})|slotted.held = []>
print(slotted)

print(filled)
<filled.notes['b'] = {int}|filled.known.add_(1)|filled.more = {int}|
    filled.known = {vector}.detach()>
<print(filled)|print(filled.known)|logger.warning('%s', filled)>

made = Owner()
made.n = {int}
print(made, made.n)
<made.n = 5|del made.n|made.parts.clear()|made.inner = types.SimpleNamespace(n=7)|made.other = 1>
<made.n = 6|made.parts.append(1)>
print(made)

pprint.pprint(<owner.names|owner.parts|catalog|ordered|{'o': owner}>)
<owner.names['b'] = {int}|owner.parts.append({vector}.sum().item())|ordered['third'] = {int}>
print(<ordered|owner.names|ordered.items()|catalog.keys()|list(ordered.values())|owner.kinds>)

said = f'''{owner} {{vector}.sum().item():.1f}'''
owner.n = {int}
print(said, <owner|'{} {n}'.format(owner, n=owner.n)|'%s' % owner|str(owner)>)

print(<catalog|{table}|{list}|{box}>, owner.weight)
<catalog['a'] = {vector}.detach()|catalog['n'] += 1|{list}.append({vector})|owner.weight.mul_(2)>
<catalog.update(n={int})|del catalog['n']>

write_stream = sys.stdout
print({int}, {vector}.sum().item(), file=<write_stream|sys.stderr|None|io.StringIO()>)
<torch.set_printoptions(precision=2)|sys.stdout = sys.stdout|sys.stdout.flush()>
print({vector}.detach())
<torch.set_printoptions(profile='default')|print('end')>
"""
    ),
)
TEXTS: Final = Theme(
    "texts that are put together",
    {
        TEXT: (
            "(f'''{{vector}.sum().item():.1f}''' + {text})",
            "', '.join([f'''{{int}}''', {text}])",
            "'-'.join(str(each) for each in (1, {int}))",
            "('%d' % {int} + str({vector}.argmax().item()))",
        ),
    },
    templates(
        r"""
said = <''|{text}|f'''{{vector}.sum().item():.2f}'''>
said = said + <{text}|f'''{{vector}.max().item():.1f}'''|str({int})|'{}'.format({int})>
if {data}:
    said += <'!'|{text}|f'''{{int}}'''>
print(said, len(said))

parts = [<{text}|f'''{{vector}.mean().item():.1f}'''|'%s' % {int}>, {text}]
parts.append(f'''{{vector}.min().item():g}''')
print(<', '|'{}'|''>.join(parts))

print(<' '|'; '>.join(f'''{v.sum().item():.1f}''' for v in {list}))

print(<', '.join([{text}, {int}])|', '.join(())|{text} + {int}|'ab'.join({text})|
    {text}.join({table})>)

head = f'''{{vector}.sum().item():.1f}'''
print(head + ' of ' + {text}, head * {int}, <head.upper()|head[0]|head == {text}|len(head)>)

print(<{text}.ljust(4)|{text}.upper()|{text} in 'abc'|{text}[0]|{text} * {int}> + {text}, sep='')

raise_text = 'value ' + f'''{{vector}.sum().item():.1f}'''
if {data}:
    raise ValueError(raise_text<| + {text}|, {int}>)

found_logger = logging.getLogger(<'random_program'|'random_program.' + {text}|{text}>)
<found_logger|found_logger.getChild('x')|logger.getChild({text})|adapter>.<info|warning|
    debug>({text})

<logger|child|logging.getLogger('random_program')>.log(<10|20|{int} * 15|
    logging.INFO>, 'at %s', {text})
<logger.setLevel(logging.DEBUG)|child.setLevel(logging.ERROR)|logger.disabled = False|
    child.propagate = True>
child.<debug|info|error>('then %d', {int})

<print|logger.info|say|sys.stdout.write|logger.critical>(<{text}|'all {}'.format({text})>)
<warnings.warn|logger.warn|logging.error|logger.fatal|warnings.warn_explicit>({text})

write_by = <functools.partial(print, {text}, end=';')|logger.info|sys.stderr.write|
    tracker.log.info|print>
write_by({text})
write_by(f'''{{vector}.sum().item():.1f}''')

print(*<{list}[:1]|[{int}, {text}]|{text}|(1, 2)|range({int})>, **<{'sep': {text}}|{}|{'end': ''}>)
logger.info(*<('%s', {text})|['plain']|('%d %s', {int}, {text})>, **<{}|{'exc_info': False}|
    {'stacklevel': 1}>)
"""
    ),
)
