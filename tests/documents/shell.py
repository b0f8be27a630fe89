"""What is wrong with a line of shell in a document: each command is parsed by what would run it, and nothing runs."""

import importlib.util
import re
import shlex

import click

from flashverify import cli, parse_case
from flashverify.campaign.commands.settings import KEYS, load_settings
from flashverify.errors import FlashverifyError
from flashverify.subjects.registry import REGISTERED
from tests.documents.blocks import ROOT

# Programs of the reader's machine: their arguments are not looked at.
OTHERS = {"cd", "cp", "g++", "./judge", "git", "pip", "python3", "wait", "xz"}
PLUGIN = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "flashverify/pytest_plugin").glob("*.py"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
ENDS = {"&&", "||", "|", ";", "&"}
REDIRECTIONS = {">", "<", ">>"}


def commands(text):
    """The words of each command; comments, redirections and the variables before a command are left out."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words, found = list(lexer), []
        for n, word in enumerate([*words, ";"]):
            if word in ENDS:
                if found:
                    yield found
                found = []
            elif not {word, words[n - 1] if n else ""} & REDIRECTIONS and (found or not re.match(r"[A-Z_]+=", word)):
                found.append(word)


def wrong_with(words, folder):
    """The complaints about a command of a page in `folder`."""
    program, arguments = words[0].rpartition("/")[2], words[1:]
    if words[0] in OTHERS or program == "pip":
        return []
    check = {"flashverify": _flashverify, "python": _python, "pytest": _pytest, "make": _make, "ruff": _nothing}
    if program in check and words[0].removesuffix(program) in ("", ".venv/bin/", "wheel/bin/"):
        return check[program](arguments, folder)
    return [f"unknown command {words[0]}: tests/documents/shell.py lists those of the reader's machine"]


def _nothing(_arguments, _folder):
    return []


def _flashverify(arguments, _folder):
    if arguments == ["--version"]:
        return []
    if arguments[0] not in cli.main.commands:
        return [f"no command {arguments[0]}"]
    try:
        options = cli.main.commands[arguments[0]].make_context(arguments[0], list(arguments[1:])).params
        if "device" in options and arguments[0] != "gallery":
            load_settings(
                {n.replace("_", "-"): v for n, v in options.items() if n.replace("_", "-") in KEYS}, {}, ROOT / "docs"
            )
        for word in arguments:
            if word.startswith("fv1 ") and "..." not in word:
                parse_case(word)
    except (click.ClickException, FlashverifyError) as error:
        return [str(error)]
    given = options.get("subject") or ()
    return [x for spec in ([given] if isinstance(given, str) else given) for x in _subject(spec)]


def _subject(spec):
    """Complaints about a subject that is ours: registered, or in a module or a file of this repository."""
    place, _, _name = spec.rpartition(":")
    if place.startswith("flashverify."):
        return [] if importlib.util.find_spec(place) is not None else [f"no module {place}"]
    if place.startswith("examples/"):
        return [] if (ROOT / place).is_file() else [f"no file {place}"]
    registered = {subject.name for subject in REGISTERED}
    return [] if place or spec.isupper() or spec in registered else [f"no registered subject {spec}"]


def _python(arguments, folder):
    if arguments[:2] == ["-m", "pytest"]:
        return _pytest(arguments[2:], folder)
    if arguments[0] == "-m":
        return [] if importlib.util.find_spec(arguments[1]) is not None else [f"no module {arguments[1]}"]
    script = next((place / arguments[0] for place in (ROOT, folder) if (place / arguments[0]).is_file()), None)
    if script is None:
        return [f"no script {arguments[0]}"]
    source = script.read_text(encoding="utf-8")
    return [f"{script.name} knows no {word}" for word in arguments[1:] if word.startswith("--") and word not in source]


def _pytest(arguments, folder):
    paths = [word.partition("::")[0] for word in arguments if word.startswith("tests/")]
    missing = [f"no {path}" for path in paths if not (ROOT / path).exists() and not (folder / path).exists()]
    options = [word.partition("=")[0] for word in arguments if word.startswith("--flashverify")]
    return missing + [f"no option {word}" for word in options if f'"{word}"' not in PLUGIN]


def _make(arguments, _folder):
    return [f"no target {word}" for word in arguments if "=" not in word and word not in TARGETS]


def unknown_options(code):
    """Options in an inline `flashverify COMMAND ...` that the command does not have; its values may be placeholders."""
    words = code.split()
    if words[:1] != ["flashverify"] or len(words) < 2 or words[1].startswith("-"):
        return []
    if words[1] not in cli.main.commands:
        return [words[1]] if words[1].islower() else []
    known = {x for p in cli.main.commands[words[1]].params for x in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}
    return [
        word
        for word in words[2:]
        if word.startswith("-") and word not in ("-", "--") and word.partition("=")[0] not in known
    ]
