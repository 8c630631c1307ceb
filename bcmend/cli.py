"""The command line: each command of `bcmend` and of `python -m bcmend`.

Exit codes: 0 when the command did what it says, 1 when what it showed is not as it should be, 2
with one line on standard error when the input was wrong. Only some commands import torch.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import tempfile
import textwrap
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from bcmend.errors import BcmendError
from bcmend.knowledge import replaced_calls
from bcmend.reasons import REASONS
from bcmend.reports import schemas, steps

if TYPE_CHECKING:
    from bcmend.policy import Policy
    from bcmend.reports.receipt import Receipt
    from bcmend.reports.site_report import Report
    from bcmend.scan.found_sites import Scan

_USAGE_ERROR: Final = 2


class _InputError(Exception):
    """The user's input is wrong; the message is the one line to print."""


class _Parser(argparse.ArgumentParser):
    """A parser that answers a wrong command line with one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        raise _InputError(message)


def _version() -> str:
    try:
        return version("bcmend")
    except PackageNotFoundError:
        return "unknown (running from a source tree that is not installed)"


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bcmend", description="Mends graph breaks of torch.compile in bytecode.")
    parser.add_argument("--version", action="version", version=f"bcmend {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("demo", help="compile a Hugging Face model before and after mending")
    doctor = commands.add_parser("doctor", help="print what is replaced in torch, and what for")
    what = doctor.add_mutually_exclusive_group()
    what.add_argument("--live", action="store_true", help="run programs to see that it works")
    what.add_argument("--against", metavar="VERSION", help="list what differs from that torch")
    report = commands.add_parser("report", help="patch an object and say what was mended")
    report.add_argument("target", metavar="MODULE:ATTRIBUTE")
    called = "call it first, compiled, with these arguments; else its code is read alone"
    report.add_argument("--call", metavar="ARGUMENTS", help=called)
    report.add_argument("--all", action="store_true", help="list mended sites however many")
    _add_output(report)
    form = report.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of text")
    form.add_argument("--html", action="store_true", help="print a page of HTML")
    listing = commands.add_parser("dis", help="print bytecode before and after, side by side")
    listing.add_argument("target", metavar="MODULE:ATTRIBUTE")
    listing.add_argument("--html", action="store_true", help="print a report with it, as HTML")
    _add_output(listing)
    _add_trials(commands)
    scan = commands.add_parser(
        "scan",
        help="say where files have sites, running none of them",
        epilog="The exit status is 1 where a file could not be read, or there was none to read.",
    )
    paths = "a .py or .pyc file, a .whl or .zip archive of them, or a folder"
    scan.add_argument("paths", metavar="PATH", nargs="+", help=paths)
    scan.add_argument("--json", action="store_true", help="print JSON instead of a table")
    run = commands.add_parser(
        "run",
        help="run a script in which all that torch.compile is given is mended",
        usage="bcmend run [OPTIONS] (SCRIPT | -m MODULE) [ARGUMENTS ...]",
        epilog="When the script has ended, one line says what was mended.",
    )
    run.add_argument("-m", dest="is_module", action="store_true", help="run a module by its name")
    run.add_argument("--report", metavar="FILE", help="write all reports there, as JSON if .json")
    run.add_argument(
        "--policy",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a field of bcmend.Policy, as branch=where; more than one may be given",
    )
    broken = "end with 1 where graphs still break, if the script has ended well"
    run.add_argument("--fail-on-break", action="store_true", help=broken)
    run.add_argument("script", metavar="SCRIPT")
    run.add_argument("arguments", metavar="ARGUMENTS", nargs=argparse.REMAINDER)
    schema = commands.add_parser("schema", help="print the JSON schema of a command's output")
    schema.add_argument("of", choices=schemas.NAMES, help="whose output with --json it describes")
    commands.add_parser("reasons", help="print every refusal reason as a Markdown page")
    commands.add_parser("substitutes", help="print what stands in for which calls, in Markdown")
    for name, examples in _EXAMPLES.items():
        _show_examples(commands.choices[name], examples)
    return parser


#: What is typed behind ``bcmend``, for each command.
_EXAMPLES: Final = {
    "demo": ("demo",),
    "doctor": ("doctor", "doctor --live", "doctor --against 2.13.0"),
    "report": (
        "report mymodel:Net",
        'report mymodel:Net --call "torch.ones(3)" -o report.html',
    ),
    "dis": ("dis mymodel:Net", "dis mymodel:Net.forward --open"),
    "why": ('why mymodel:Net --call "torch.ones(3)"',),
    "explain": (
        'explain mymodel:Net --call "torch.ones(3)"',
        'explain mymodel:net --call "x, scale=2" --train --open',
        'explain mymodel:net --call "x" --format github --fail-on-break',
    ),
    "bench": ('bench mymodel:Net --call "torch.ones(3)" --seconds 10',),
    "verify": (
        'verify mymodel:Net --call "torch.ones(3)"',
        'verify mymodel:Net --call "torch.ones(3)" --sides all --train',
    ),
    "scan": ("scan mymodel.py", "scan src model.whl --json"),
    "run": (
        "run train.py --epochs 3",
        "run --report report.txt --policy output=keep train.py --epochs 3",
        "run --fail-on-break -m mymodel.train",
    ),
    "schema": ("schema explain",),
    "reasons": ("reasons",),
    "substitutes": ("substitutes",),
}


def _show_examples(command: argparse.ArgumentParser, examples: Iterable[str]) -> None:
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    lines = [*textwrap.wrap(command.epilog or ""), "", "Examples:"]
    command.epilog = "\n".join([*lines, *(f"  bcmend {each}" for each in examples)]).lstrip()


def _add_trials(commands: Any) -> None:
    """Add the commands that call an object."""
    why = commands.add_parser("why", help="compile and call an object; say why it was traced anew")
    _add_call(why, "json", backend="eager")
    explain = commands.add_parser(
        "explain",
        help="compile and call an object, stock and mended; say where graphs break",
        epilog="The exit status is 2 where the call raised, and with --fail-on-break 1 where "
        "graphs still break after mending.",
    )
    _add_call(explain, "json", "html", "github")
    explain.add_argument("--train", action="store_true", help=_TRAIN)
    broken = "end with 1 where graphs still break after mending, or the call raises only then"
    explain.add_argument("--fail-on-break", action="store_true", help=broken)
    bench = commands.add_parser(
        "bench",
        help="say how long calls of an object take: eager, stock and mended, in turns",
        epilog="Ctrl-C ends measuring, and what was measured is shown. The exit status is 1 where "
        "the call raised mended alone, and 2 where it raised without that.",
    )
    _add_call(bench, "json", "html")
    bench.add_argument("--train", action="store_true", help=_TRAIN)
    seconds = "how long later calls are made, behind the first ones; 60 if left out"
    bench.add_argument("--seconds", type=float, default=60.0, help=seconds)
    verify = commands.add_parser(
        "verify",
        help="say whether a call of an object, mended, shows what it does in eager execution",
        epilog="The exit status is 1 where it shows something else, and 2 where each call raised.",
    )
    _add_call(verify, "json", "html", "github", backend="eager")
    verify.add_argument("--runs", type=int, default=2, help="how many calls; 2 if left out")
    verify.add_argument("--train", action="store_true", help="go backward, in training mode")
    verify.add_argument(
        "--sides",
        choices=("taken", "all"),
        default="taken",
        help="have calls take all sides of what is mended; those that the inputs take if left out",
    )
    seconds = "after how many no more calls are made for that; 600 if left out"
    verify.add_argument("--seconds", type=float, default=600.0, help=seconds)


#: What ``--train`` does where times are measured.
_TRAIN: Final = "in training mode, each call goes back from the sum of all floating results"


def _add_call(command: argparse.ArgumentParser, *forms: str, backend: str = "inductor") -> None:
    """Add what says which object is called, and how, and in which forms the output can be."""
    command.add_argument("target", metavar="MODULE:ATTRIBUTE")
    command.add_argument(
        "--call",
        metavar="ARGUMENTS",
        default="",
        help='what it is called with, as "torch.ones(3), scale=2": names are those of the module',
    )
    of = f"of torch.compile; {backend} if left out"
    command.add_argument("--backend", default=backend, help=of)
    command.add_argument(
        "--expect-error",
        action="store_true",
        help="the call is to raise; else the exit status is 2 where it does",
    )
    _add_output(command)
    form = command.add_mutually_exclusive_group()
    choices = ("text", *forms)
    form.add_argument("--format", choices=choices, default="text", help="text if left out")
    for each in filter(_FORM_FLAGS.__contains__, forms):
        form.add_argument(
            f"--{each}", action="store_const", dest="format", const=each, help=_FORM_FLAGS[each]
        )


def _add_output(command: argparse.ArgumentParser) -> None:
    """Add where the output goes."""
    command.add_argument("-o", "--output", metavar="FILE", help="write there, and print nothing")
    command.add_argument("--open", action="store_true", help="show it as a page in a browser")


def _choose_form(parsed: argparse.Namespace) -> None:
    """Have a name that ends in ``.html`` or ``.json``, or a browser, say which form is wanted."""
    wanted = "html" if parsed.open else (parsed.output or "").rpartition(".")[2]
    if wanted in _FORM_FLAGS and hasattr(parsed, wanted):
        setattr(parsed, wanted, True)
    elif wanted in _FORM_FLAGS and getattr(parsed, "format", None) == "text":
        parsed.format = wanted


def _put(text: str, parsed: argparse.Namespace) -> None:
    """Print what was found, or write it to a file, and show that."""
    name = parsed.output
    if name is None and parsed.open:
        with tempfile.NamedTemporaryFile(suffix=".html", delete=False) as file:
            name = file.name
    if name is None:
        print(text)
        return
    try:
        Path(name).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise _InputError(f"cannot write {name}: {_first_line(error)}") from error
    if parsed.open:
        webbrowser.open(Path(name).absolute().as_uri())


#: The forms of output that have a flag of their own, with what it does.
_FORM_FLAGS: Final = {"json": "print JSON instead of text", "html": "print a page of HTML"}


def _formed(found: object, form: str) -> str:
    """Return what was found as text, or as what its method for another form gives."""
    return str(found) if form == "text" else str(methodcaller(f"to_{form}")(found))


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


@contextmanager
def _modules_found_here() -> Iterator[None]:
    """Import from the working directory, where `python -m` looks and a console script does not."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _load(target: str) -> object:
    """Return the object that "module:attribute" names; raises `_InputError` when there is none."""
    module_name, separator, attribute = target.partition(":")
    if not (module_name and separator and attribute):
        raise _InputError(f"expected MODULE:ATTRIBUTE, got {target!r}")
    try:
        with _modules_found_here():
            module = importlib.import_module(module_name)
    except Exception as error:
        # importing runs the user's code, which may raise anything
        raise _InputError(f"cannot import {module_name!r}: {_first_line(error)}") from error
    try:
        return attrgetter(attribute)(module)
    except AttributeError as error:
        raise _InputError(_first_line(error)) from error


def _report(target: str, *, bytecode: bool = False) -> Report:
    subject = _load(target)
    import bcmend  # takes long: only once the target is known to exist

    try:
        with bcmend.patched(subject, policy=bcmend.Policy(mend="ahead")):
            return bcmend.report(subject, ahead=True, bytecode=bytecode)
    except BcmendError as error:
        raise _InputError(f"cannot patch {target}: {_first_line(error)}") from error


def _report_of_a_call(target: str, call: str) -> Report:
    subject, arguments, keywords = _call(target, call)
    import bcmend

    try:
        compiled = bcmend.compile(subject, backend="eager")
    except BcmendError as error:
        raise _InputError(f"cannot patch {target}: {_first_line(error)}") from error
    raised = _raised_by(compiled, arguments, keywords)
    if raised is not None:
        _say_that_it_raised(raised)
    return bcmend.report(subject)


def _print_report(parsed: argparse.Namespace) -> int:
    found = (
        _report(parsed.target)
        if parsed.call is None
        else _report_of_a_call(parsed.target, parsed.call)
    )
    if parsed.html:
        text = found.to_html()
    else:
        text = found.to_json() if parsed.json else found.to_text(every=parsed.all)
    _put(text, parsed)
    return 0


def _print_bytecode(parsed: argparse.Namespace) -> int:
    found = _report(parsed.target, bytecode=True)
    pairs = "\n\n".join(map(str, found.bytecode)) or "bcmend writes no new bytecode for it"
    _put(found.to_html() if parsed.html else pairs, parsed)
    return 0


def _call(target: str, call: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return an object, of a class an object that is made of it, and arguments of a call."""
    subject = _load(target)
    import torch

    try:
        if isinstance(subject, type):
            subject = subject()
        names = {"torch": torch, **vars(sys.modules[target.partition(":")[0]])}
        return subject, *eval(f"(lambda *a, **k: (a, k))({call})", names)
    except Exception as error:  # code of the user, which may raise anything
        raise _InputError(f"cannot make a call of {target}: {_first_line(error)}") from error


def _run(parsed: argparse.Namespace) -> int:
    name = parsed.script
    if not parsed.is_module and not os.path.exists(name):
        raise _InputError(f"there is no script {name!r}; to run a module, write: -m {name}")
    if parsed.is_module and not _is_importable(name):
        raise _InputError(f"there is no module {name!r}")
    from bcmend import installation

    policy, script, status = _policy(parsed.policy), [name, *parsed.arguments], 0
    file = parsed.report and os.path.abspath(parsed.report)  # scripts may go elsewhere
    try:
        installation.run_script(script, is_module=parsed.is_module, policy=policy)
    except Exception as error:
        _show_error_of_a_script(error)
        status = 1
    finally:  # it may have ended itself
        receipt = installation.receipt()
        if receipt is not None:
            _give(receipt, file)
    is_broken = parsed.fail_on_break and receipt is not None and receipt.places_left > 0
    return status or int(is_broken)


def _show_error_of_a_script(error: BaseException) -> None:
    """Show an exception as Python does where nothing has run the script."""
    own, frame = Path(__file__).parent, error.__traceback__
    while frame is not None and (
        Path(frame.tb_frame.f_code.co_filename).is_relative_to(own)
        or frame.tb_frame.f_code.co_filename == "<frozen runpy>"
    ):
        frame = frame.tb_next
    if frame is not None:
        error.__traceback__ = frame
    sys.excepthook(type(error), error, error.__traceback__)


def _give(receipt: Receipt, file: str | None) -> None:
    """Write one line, and all reports where a file for them is named."""
    print(receipt, file=sys.stderr)
    if file:
        text = receipt.to_json() if file.endswith(".json") else receipt.to_text()
        Path(file).write_text(text + "\n", encoding="utf-8")


def _policy(given: Sequence[str]) -> Policy | None:
    """Return the policy of ``NAME=VALUE``; of what has several values, with commas between."""
    if not given:
        return None
    import bcmend

    fields: dict[str, Any] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator:
            raise _InputError(f"expected NAME=VALUE of a policy, got {each!r}")
        has_several = name in ("off", "include", "exclude")
        fields[name] = tuple(value.split(",")) if has_several else value
    try:
        return bcmend.Policy(**fields)
    except (BcmendError, TypeError) as error:
        raise _InputError(f"no such policy: {_first_line(error)}") from error


def _is_importable(name: str) -> bool:
    try:
        with _modules_found_here():
            return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _explain(parsed: argparse.Namespace) -> int:
    try:
        with steps.shown(f"importing {parsed.target}"):
            subject, arguments, keywords = _call(parsed.target, parsed.call)
            import bcmend

            chosen = {"backend": parsed.backend, "train": parsed.train}
            found = bcmend.explain(subject, *arguments, **chosen, **keywords)
    except BcmendError as error:
        raise _InputError(f"cannot explain {parsed.target}: {_first_line(error)}") from error
    _put(_formed(found, parsed.format), parsed)
    is_broken = parsed.fail_on_break and not found.is_mended
    return _status_of_call(found.raised, parsed) or int(is_broken)


def _bench(parsed: argparse.Namespace) -> int:
    chosen = {each: getattr(parsed, each) for each in ("train", "backend", "seconds")}
    try:
        with steps.shown(f"importing {parsed.target}"):
            from bcmend.trials.benching import bench_made

            found = bench_made(partial(_call, parsed.target, parsed.call), **chosen)
    except BcmendError as error:
        raise _InputError(f"cannot measure {parsed.target}: {_first_line(error)}") from error
    _put(_formed(found, parsed.format), parsed)
    if found.raised:
        return _status_of_call(found.raised, parsed)
    return int(bool(found.mended.raised))


def _verify(parsed: argparse.Namespace) -> int:
    chosen = {
        each: getattr(parsed, each) for each in ("runs", "train", "backend", "sides", "seconds")
    }
    try:
        with steps.shown(f"importing {parsed.target}"):
            subject, arguments, keywords = _call(parsed.target, parsed.call)
            import bcmend

            verdict = bcmend.verify(subject, *arguments, **chosen, **keywords)
    except BcmendError as error:
        raise _InputError(f"cannot verify {parsed.target}: {_first_line(error)}") from error
    _put(_formed(verdict, parsed.format), parsed)
    if not verdict.equal:
        return 1
    return _status_of_call(verdict.each_call_raised, parsed)


def _status_of_call(raised: object, parsed: argparse.Namespace) -> int:
    """Return the exit status of what was found of a call: 2 where it raised, unless it is to."""
    return 2 if raised and not parsed.expect_error else 0


def _why(parsed: argparse.Namespace) -> int:
    import bcmend

    with steps.shown(f"importing {parsed.target}"):
        subject, arguments, keywords = _call(parsed.target, parsed.call)
        try:
            compiled = bcmend.compile(subject, backend=parsed.backend)
        except BcmendError as error:
            raise _InputError(f"cannot patch {parsed.target}: {_first_line(error)}") from error
        steps.step(f"calling {parsed.target}")
        raised = _raised_by(compiled, arguments, keywords)
    if raised is not None:  # what was traced until then is what the user wants to see
        _say_that_it_raised(raised)
    found = bcmend.why(subject)
    bcmend.unpatch(subject)
    _put(_formed(found, parsed.format), parsed)
    return _status_of_call(raised, parsed)


def _say_that_it_raised(raised: Exception) -> None:
    text = f"bcmend: the call raised {type(raised).__name__}: {_first_line(raised)}"
    print(text, file=sys.stderr)


def _raised_by(called: Any, arguments: Any, keywords: Any) -> Exception | None:
    try:
        called(*arguments, **keywords)
    except Exception as error:
        return error
    return None


#: The commands that are about an object.
_OF_OBJECTS: Final = {
    "report": _print_report,
    "dis": _print_bytecode,
    "explain": _explain,
    "bench": _bench,
    "verify": _verify,
    "why": _why,
}


def _scan(paths: Sequence[str]) -> Scan:
    from bcmend.scan.code_files import UnusablePath
    from bcmend.scan.progress import shown
    from bcmend.scan.scanner import scan

    try:
        with shown() as progress:
            found = scan(paths, progress)
    except UnusablePath as error:
        raise _InputError(str(error)) from error
    if not found.files:
        print("bcmend: warning: there is no .py or .pyc file to scan", file=sys.stderr)
    for problem in found.warnings:
        print(f"bcmend: warning: {problem}", file=sys.stderr)
    return found


def _show(found: Scan, *, as_json: bool) -> None:
    from rich.console import Console

    console = Console()
    if as_json:
        print(found.to_json())
    elif console.is_terminal:
        console.print(found)
    else:
        print(found)  # a table folds its columns to the width of a screen, a file needs none


def reasons_page() -> str:
    """Return the documentation page of every refusal reason, as Markdown."""
    parts = [
        "# Refusals",
        "A site that bcmend does not mend is an ordinary graph break. The report lists it under "
        "*still breaks the graph*, or as *mended at first, then switched off*. It names one of "
        "the reasons below. This page is the output of `python -m bcmend reasons`.",
        'With `fullgraph=True` such a break is an error. `Policy(one_sided="exit")` captures one '
        "side of most branches that are refused. Calls that take the other are made in plain "
        "Python.",
    ]
    for found in REASONS.values():
        parts += [f"## {found.slug}", found.meaning, f"*What to do:* {found.hint}"]
    return "\n\n".join(parts) + "\n"


def _doctor(*, is_live: bool, against: str | None) -> int:
    if against is not None:
        lines = list(_against(against))
        print("\n".join(lines))
        return int(len(lines) > 1)
    if not is_live:
        from bcmend.doctor import listing

        print("\n".join(listing.lines()))
        return 0
    from bcmend.doctor import live

    try:
        found = live.check()
    except BcmendError as error:
        print(_first_line(error))
        return 1
    print("\n".join(live.lines(found)))
    return 0 if found is not None and found.is_right else 1


def _against(version: str) -> Iterator[str]:
    """Yield how the running torch differs from a recorded release, as a list of what to port.

    One line alone says that nothing does.
    """
    from bcmend.dynamo.contract import recorded
    from bcmend.patching import torch_check

    release = recorded.of_version(version)
    if release is None:
        known = ", ".join(each.version for each in recorded.releases())
        raise _InputError(f"no release {version!r} is recorded; those that are: {known}")
    yield from torch_check.porting_list(release)


#: The commands that print a text.
_TEXTS: Final[dict[str, Callable[[argparse.Namespace], str]]] = {
    "schema": lambda parsed: schemas.schema_text(parsed.of),
    "reasons": lambda parsed: reasons_page(),
    "substitutes": lambda parsed: replaced_calls.page(),
}


def _dispatch(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if parsed.command in _OF_OBJECTS:
        _choose_form(parsed)
        return _OF_OBJECTS[parsed.command](parsed)
    match parsed.command:
        case None:
            parser.print_help()
        case "scan":
            scanned = _scan(parsed.paths)
            _show(scanned, as_json=parsed.json)
            return 0 if scanned.is_complete else 1
        case "doctor":
            return _doctor(is_live=parsed.live, against=parsed.against)
        case "run":
            return _run(parsed)
        case "schema" | "reasons" | "substitutes":
            print(_TEXTS[parsed.command](parsed), end="")
        case "demo":
            from bcmend import demo

            try:
                return demo.run()
            except demo.MissingLibrary as error:
                raise _InputError(str(error)) from error
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; `arguments` defaults to those of `sys.argv`."""
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
        return status
    except _InputError as error:
        print(f"bcmend: error: {error}", file=sys.stderr)
        return _USAGE_ERROR
    except BrokenPipeError:  # whoever reads has read enough, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
