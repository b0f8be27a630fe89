"""A session: Triton's interpreter with other semantics, from `with` to its end. Everything is put back on exit.

A session changes state of the whole process: the class and options of Triton's one builder, names in Triton's interpreter
module, and `triton.language`, which stays patched for interpreting between launches. Hence one session at a time; launches
from several threads take turns; nothing may be compiled for a GPU while one is open.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from triton.runtime.autotuner import Autotuner

from flashverify.errors import UsageError
from flashverify.interpreter import calls, language
from flashverify.interpreter.block_accesses import block_accesses
from flashverify.interpreter.device_library import device_functions
from flashverify.interpreter.executor import Executor
from flashverify.interpreter.formats import numpy_dtype
from flashverify.interpreter.hooks import builder, check_hooks, interpreting, stock, tl
from flashverify.interpreter.interleaving import Switching, Turns
from flashverify.interpreter.lockstep import Lockstep
from flashverify.interpreter.loop_code import REWRITTEN, LoopTransformer
from flashverify.interpreter.numerics import Numerics
from flashverify.interpreter.products import Products
from flashverify.launching.autotuning import first_left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.interpreter.layer import Layer

__all__ = ["ELEMENTS", "Session", "active", "session"]

ELEMENTS = 1 << 18
"""Elements that one array of a lockstep may have: a few of them fit a processor's cache."""

_REMEMBERED = 256
_EXTENSIONS = 8
_MISSING = object()
_open = threading.Lock()
_sessions: list[Session] = []


@dataclasses.dataclass(slots=True, kw_only=True)
class Session:
    """An open session.

    Attributes:
        builder: Triton's builder, of the session's class.
        plain_class: its class while programs run one at a time.
        lockstep_class: its class while they run in lockstep.
        opened: what that was when the session was opened.
        lockstep: whether launches try to run in lockstep.
        order: from the number of programs of a launch to the order in which they run; None is ascending.
        turns: programs that do not run in lockstep take turns by it, at the places of `Switching`; None is one after the other.
        limit: elements that one array of a lockstep may have.
        lock: held by the launch that runs.
        watched: names that replayed device functions use.
        partitions: by launch, the groups of programs that went the same way the last time, last first.
        meanings: how often a name that kernels use came to mean something else.
        launches: so far.
        extensions: classes with more mixins, by the lockstep class that they extend and the mixins; their tapes stay with them.
        attempts: in lockstep so far; more than the launches where programs diverged or were cut into chunks.
        fallbacks: launches that ran one program at a time after all, by (kernel, reason).
    """

    builder: Any
    plain_class: type
    lockstep_class: type
    lockstep: bool
    order: Callable[[int], Any] | None
    limit: int
    opened: type
    turns: Any = None
    lock: threading.RLock = dataclasses.field(default_factory=threading.RLock)
    watched: calls.Globals = dataclasses.field(default_factory=calls.Globals)
    partitions: dict[Any, list[Any]] = dataclasses.field(default_factory=dict)
    extensions: dict[Any, tuple[type, type]] = dataclasses.field(default_factory=dict)
    meanings: int = 0
    launches: int = 0
    attempts: int = 0
    fallbacks: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)

    @property
    def repeating(self) -> bool:
        """Whether launches that are known need not run: no mixin was taken in but the one by which programs take turns.

        The order of programs decides nothing in them: none stores what another one loads or stores.
        """
        return self.lockstep_class in (self.opened, self.extensions.get((self.opened, (Switching,)), (None, None))[1])

    def forget(self) -> None:
        """Record every call anew, whatever class it was recorded with, and take no launch for one of before."""
        self.meanings += 1
        known = (
            self.lockstep_class,
            *(kind for kind, _ in self.extensions),
            *(kind for _, kind in self.extensions.values()),
        )
        for kind in known:
            if kind.tapes:
                kind.tapes.clear()

    def remember(self, key: Any, groups: list[Any]) -> None:
        """Begin the next launch like this one with these groups: finer than need be at worst."""
        if len(self.partitions) >= _REMEMBERED:
            self.partitions.clear()
        self.partitions[key] = groups

    @contextlib.contextmanager
    def interleaved(self, seed: int, share: float = 1.0) -> Iterator[None]:
        """Programs that do not run in lockstep take turns until the end of the block, see `Turns`."""
        before, self.turns = self.turns, Turns(seed, share)
        try:
            with self.extended(Switching):
                yield
        finally:
            self.turns = before

    @contextlib.contextmanager
    def extended(self, *mixins: type[Layer]) -> Iterator[None]:
        """Take in more mixins until the end of the block, directly below the lockstep layer; they get no `on_open`."""
        b, before = self.builder, (self.plain_class, self.lockstep_class)
        key = (self.lockstep_class, mixins)
        if key not in self.extensions:
            if len(self.extensions) >= _EXTENSIONS:
                self.extensions.clear()
            self.extensions[key] = _extension(self.lockstep_class.__bases__, mixins)
        self.plain_class, self.lockstep_class = self.extensions[key]
        b.__class__ = self.plain_class
        try:
            yield
        finally:
            self.plain_class, self.lockstep_class = before
            b.__class__ = self.plain_class


def active() -> Session | None:
    """The open session, if there is one."""
    return _sessions[-1] if _sessions else None


@contextlib.contextmanager
def session(
    *mixins: type[Layer],
    outer: tuple[type[Layer], ...] = (),
    lockstep: bool = True,
    order: Callable[[int], Any] | None = None,
    limit: int = ELEMENTS,
) -> Iterator[Session]:
    """Open a session.

    Args:
        mixins: below the lockstep layer and above the arithmetic, the outermost first.
        outer: above the lockstep layer; they see arrays before these are broadcast.
        lockstep: run all programs of a launch at once where that is known to be right.
        order: from the number of programs to the flat program numbers in the order in which they run.
        limit: elements that one array of a lockstep may have.

    Yields:
        The session, with its counters.

    Raises:
        UsageError: this process does not interpret, its Triton is not supported, or a session is open already.
    """
    if not interpreting():
        raise UsageError("the interpreter is off: set TRITON_INTERPRET=1 before triton is imported")
    if not _open.acquire(blocking=False):
        raise UsageError("a session of flashverify.interpreter is open already; they do not nest")
    try:
        check_hooks()
        with contextlib.ExitStack() as undo:
            state = _opened(undo, mixins, outer, lockstep, order, limit)
            _sessions.append(state)
            undo.callback(_sessions.pop)
            yield state
    finally:
        _open.release()


def _extension(bases: tuple[type, ...], mixins: tuple[type[Layer], ...]) -> tuple[type, type]:
    """The classes of a session with more mixins: while programs run one at a time, and in lockstep."""
    at = bases.index(Lockstep)
    plain = type("PlainBuilder", (*bases[:at], *mixins, *bases[at + 1 :]), {})
    return plain, type("LockstepBuilder", (*bases[: at + 1], *mixins, *bases[at + 1 :]), _tapes((*mixins, *bases)))


def _tapes(mixins: tuple[type[Layer], ...]) -> dict[str, Any]:
    """Attributes of a class that runs in lockstep: room for calls to replay, unless a mixin looks at every operation."""
    return {"tapes": None if any(mixin.traces for mixin in mixins) else {}}


def _replace(undo: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    before = vars(owner).get(name, _MISSING)
    undo.callback(delattr, owner, name) if before is _MISSING else undo.callback(setattr, owner, name, before)
    setattr(owner, name, value)


def _opened(
    undo: contextlib.ExitStack,
    mixins: tuple[type[Layer], ...],
    outer: tuple[type[Layer], ...],
    lockstep: bool,
    order: Callable[[int], Any] | None,
    limit: int,
) -> Session:
    b = builder()
    below = (*mixins, Products, Numerics)
    plain = type("PlainBuilder", (*outer, *below), {})
    together = type("LockstepBuilder", (*outer, Lockstep, *below), _tapes(below))
    known: dict[str, Any] = {"lockstep": lockstep, "order": order, "limit": limit, "opened": together}
    state = Session(builder=b, plain_class=plain, lockstep_class=together, **known)

    undo.callback(_restore_builder, b, b.__class__, dict(vars(b)))
    b.options = dataclasses.replace(b.options, sanitize_overflow=False)  # its checks are computed and then dropped
    b.__class__ = plain

    # Triton patches `triton.language` at every launch and at every call of a device function: once is enough.
    scope = stock._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    undo.callback(scope.restore)
    nothing = SimpleNamespace(restore=lambda: None)
    _replace(undo, stock, "_patch_lang", lambda _fn: nothing)
    _replace(undo, stock, "_get_np_dtype", numpy_dtype)
    executor = type("SessionExecutor", (Executor,), {"session": state, "_signatures": {}, "_pointers": {}})
    _replace(undo, stock, "GridExecutor", executor)
    for owner, name, value in (*language.replacements(), *language.memoised(), *calls.builtins()):
        _replace(undo, owner, name, value)
    for owner, name, value in (*block_accesses(), *device_functions()):
        _replace(undo, owner, name, value)
    _replace(undo, Autotuner, "run", first_left(Autotuner.run))
    _replace(undo, stock.FunctionRewriter, "ast_transformer", LoopTransformer())
    _replace(undo, stock.InterpretedFunction, "rewritten_fn", REWRITTEN)
    _replace(undo, stock.InterpretedFunction, "__call__", calls.replayed_function(state.watched))
    b.on_open()
    return state


def _restore_builder(b: Any, kind: type, attributes: dict[str, Any]) -> None:
    b.__class__ = kind
    vars(b).clear()
    vars(b).update(attributes)
