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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, Final, NoReturn

from bcmend.errors import BcmendError
from bcmend.knowledge import replaced_calls
from bcmend.reasons import REASONS
from bcmend.reports import schemas, steps

if TYPE_CHECKING:
    from bcmend.reports.site_report import Report
    from bcmend.scan.found_sites import Scan

_USAGE_ERROR: Final = 2


class _InputError(Exception):
    """The user's input is wrong; the message is the one line to print."""


class _OfTheScript(Exception):
    """A script has raised its cause."""


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
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("demo", help="compile a Hugging Face model before and after mending")
    doctor = commands.add_parser("doctor", help="print what is replaced in torch, and what for")
    what = doctor.add_mutually_exclusive_group()
    what.add_argument("--live", action="store_true", help="run programs to see that it works")
    what.add_argument("--against", metavar="VERSION", help="list what differs from that torch")
    report = commands.add_parser("report", help="patch an object and say what was mended")
    report.add_argument("target", metavar="MODULE:ATTRIBUTE")
    report.add_argument("--all", action="store_true", help="list mended sites however many")
    form = report.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of text")
    form.add_argument("--html", action="store_true", help="print a page of HTML")
    listing = commands.add_parser("dis", help="print bytecode before and after, side by side")
    listing.add_argument("target", metavar="MODULE:ATTRIBUTE")
    listing.add_argument("--html", action="store_true", help="print a report with it, as HTML")
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
        usage="bcmend run (SCRIPT | -m MODULE) [ARGUMENTS ...]",
    )
    run.add_argument("-m", dest="is_module", action="store_true", help="run a module by its name")
    run.add_argument("script", metavar="SCRIPT")
    run.add_argument("arguments", metavar="ARGUMENTS", nargs=argparse.REMAINDER)
    schema = commands.add_parser("schema", help="print the JSON schema of a command's output")
    schema.add_argument("of", choices=schemas.NAMES, help="whose output with --json it describes")
    commands.add_parser("reasons", help="print every refusal reason as a Markdown page")
    commands.add_parser("substitutes", help="print what stands in for which calls, in Markdown")
    return parser


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
    form = command.add_mutually_exclusive_group()
    choices = ("text", *forms)
    form.add_argument("--format", choices=choices, default="text", help="text if left out")
    for each in filter(_FORM_FLAGS.__contains__, forms):
        form.add_argument(
            f"--{each}", action="store_const", dest="format", const=each, help=_FORM_FLAGS[each]
        )


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


def _print_report(parsed: argparse.Namespace) -> int:
    found = _report(parsed.target)
    if parsed.html:
        print(found.to_html())
    else:
        print(found.to_json() if parsed.json else found.to_text(every=parsed.all))
    return 0


def _print_bytecode(parsed: argparse.Namespace) -> int:
    found = _report(parsed.target, bytecode=True)
    if parsed.html:
        print(found.to_html())
    else:
        print("\n\n".join(map(str, found.bytecode)) or "bcmend writes no new bytecode for it")
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


def _run(parsed: argparse.Namespace) -> None:
    name = parsed.script
    if not parsed.is_module and not os.path.exists(name):
        raise _InputError(f"there is no script {name!r}; to run a module, write: -m {name}")
    if parsed.is_module and not _is_importable(name):
        raise _InputError(f"there is no module {name!r}")
    from bcmend.installation import run_script

    try:
        run_script([name, *parsed.arguments], is_module=parsed.is_module)
    except BrokenPipeError as error:  # of the script's own, which is no reader of a command
        raise _OfTheScript from error


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
    print(_formed(found, parsed.format))
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
    print(_formed(found, parsed.format))
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
    print(_formed(verdict, parsed.format))
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
        print(
            f"bcmend: the call raised {type(raised).__name__}: {_first_line(raised)}",
            file=sys.stderr,
        )
    found = bcmend.why(subject)
    bcmend.unpatch(subject)
    print(_formed(found, parsed.format))
    return _status_of_call(raised, parsed)


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
        "*still breaks the graph*, or as *mended at first, then switched off*, and names one of "
        "the reasons below. This page is the output of `python -m bcmend reasons`.",
        'With `fullgraph=True` such a break is an error. `Policy(one_sided="exit")` captures one '
        "side of most branches that are refused; calls that take the other are made in plain "
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


def _dispatch(arguments: Sequence[str] | None) -> int:
    parsed = _parser().parse_args(arguments)
    if parsed.command in _OF_OBJECTS:
        return _OF_OBJECTS[parsed.command](parsed)
    match parsed.command:
        case "scan":
            scanned = _scan(parsed.paths)
            _show(scanned, as_json=parsed.json)
            return 0 if scanned.is_complete else 1
        case "doctor":
            return _doctor(is_live=parsed.live, against=parsed.against)
        case "run":
            _run(parsed)
        case "schema":
            print(schemas.schema_text(parsed.of), end="")
        case "reasons":
            print(reasons_page(), end="")
        case "substitutes":
            print(replaced_calls.page(), end="")
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
    except _OfTheScript as error:
        raise error.__cause__ or error from None
    except BrokenPipeError:  # whoever reads has read enough, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
