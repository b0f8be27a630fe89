"""How a launch runs: arguments bound as compiled kernels get them, then all programs in lockstep, or one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from flashverify.interpreter.binding import Binding
from flashverify.interpreter.groups import NUMBERS, by_value, chunks
from flashverify.interpreter.hooks import stock
from flashverify.interpreter.keys import hold
from flashverify.interpreter.layer import Diverged, Launch, Signal, TooLarge
from flashverify.interpreter.memory import Replayed
from flashverify.interpreter.parting import whole_values
from flashverify.interpreter.signature import Signature
from flashverify.interpreter.spellings import advised

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.interpreter.session import Session

__all__ = ["Executor"]


class Executor(stock.GridExecutor):  # type: ignore[misc]
    """One launch. Triton makes one per launch with `(fn, arg_names, grid, pre_run_hooks)`; `session` is its class's."""

    session: ClassVar[Session]
    _signatures: ClassVar[dict[Any, Signature]]
    _pointers: ClassVar[dict[Any, Any]]
    _binding: Binding

    def __init__(self, fn: Any, arg_names: Any, grid: Any, pre_run_hooks: Any = ()) -> None:
        self.fn, self.arg_names, self.grid, self.pre_run_hooks = fn, arg_names, grid, pre_run_hooks
        found = self._signatures.get(fn)
        if found is None:
            found = self._signatures[fn] = Signature(fn)
        self.signature = found
        self.constexprs = found.constexprs

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Run the launch.

        Raises:
            InterpreterError: the kernel raised an exception, which is its cause.
        """
        with torch._C.DisableTorchFunction():  # what tensors answer under a mode of the caller's is not what they are
            self._launch(args, {name: value for name, value in kwargs.items() if name in self.signature.names})

    def _launch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        elsewhere = _on_gpu(args) or _on_gpu(kwargs.values())
        args_host, kwargs_host = self._init_args_hst(args, kwargs) if elsewhere else (args, kwargs)
        for hook in self.pre_run_hooks:
            hook(*args_host, **kwargs_host)
        with self.session.lock, np.errstate(all="ignore"):
            raw = self.signature.bound(self.fn, args_host, kwargs_host)
            self._binding = binding = Binding(self.signature, self._pointers)
            arguments = {name: binding.argument(name, value) for name, value in raw.items()}
            grid = self.grid(arguments) if callable(self.grid) else self.grid
            if len(grid) > 3:
                raise ValueError(f"grid: at most 3 dimensions, got {grid}")
            extent = (*(int(n) for n in grid), 1, 1)[:3]
            tensors = tuple(binding.tensors)
            launch = Launch(self.fn.__name__, self.fn.__code__.co_filename, raw, arguments, extent, tensors)  # type: ignore[arg-type]
            self._run(launch)
        if elsewhere:
            self._restore_args_dev(args, args_host, kwargs, kwargs_host)

    def _run(self, launch: Launch) -> None:
        session = self.session
        x, y, z = launch.grid
        session.builder.set_grid_dim(*launch.grid)
        session.builder.on_launch(launch)
        count = x * y * z
        programs = np.arange(count) if session.order is None else np.asarray(session.order(count))
        session.launches += 1
        if session.lockstep and count:
            if session.watched.changed():
                session.forget()
            session.watched.watch(self.fn)
            repeated = session.repeating and session.builder.repeated(self.fn, launch, session.meanings)
            programs = programs[:0] if repeated else self._together(launch, programs)
        if session.turns is not None and len(programs) > 1:
            self._in_turns(launch, programs)
        else:
            for program in programs:
                self._alone(launch, int(program))
        session.builder.on_finish(launch)

    # --- one at a time ----------------------------------------------------------------------------------------------

    def _alone(self, launch: Launch, program: int) -> None:
        b = self.session.builder
        self._enter(launch, program)
        Replayed.at = None
        b.on_attempt()
        try:
            self.fn(**launch.arguments)
        except Exception as error:
            if triton.knobs.compilation.front_end_debugging:
                raise
            raise stock.InterpreterError(advised(error)) from error

    def _enter(self, launch: Launch, program: int) -> None:
        """The builder works for this program from here on."""
        b, (_, y, z) = self.session.builder, launch.grid
        b.set_grid_idx(program // (y * z), program // z % y, program % z)
        b.programs = np.array([program])

    def _in_turns(self, launch: Launch, programs: Any) -> None:
        b, turns = self.session.builder, self.session.turns
        b.turns = turns
        try:
            turns.run(
                programs, lambda program: self._alone(launch, program), lambda program: self._enter(launch, program)
            )
        finally:
            b.turns = None

    # --- in lockstep ------------------------------------------------------------------------------------------------

    def _together(self, launch: Launch, programs: Any) -> Any:
        """Run in lockstep, by groups that go the same way; return the programs that must still run one at a time."""
        session, b = self.session, self.session.builder
        key = (self.fn, launch.grid, *self._binding.kinds)
        groups = list(session.partitions.get(key, ()) if session.order is None else ()) or [np.arange(len(programs))]
        first, done = len(groups), []
        b.__class__, b.limit = session.lockstep_class, session.limit
        hold(self._binding.rest, self._binding.held)
        try:
            while groups:
                group = groups.pop()
                try:
                    self._attempt(launch, programs[group])
                    done.append(group)
                    continue
                except Diverged as signal:
                    more, reason = by_value(group, whole_values(signal.values, b.active, len(group))), repr(signal)
                except TooLarge as signal:
                    more, reason = chunks(group, session.limit // signal.elements), repr(signal)
                except (Signal, Exception) as signal:  # a kernel's own exception comes again, from the program it is of
                    more, reason = [], f"{type(signal).__name__}: {signal}"
                self._take_back()
                if len(more) < 2:
                    session.fallbacks[launch.name, reason] += 1
                    return programs[np.sort(np.concatenate([group, *groups]))]
                groups.extend(more)
            if len(done) > first:
                session.remember(key, done[::-1])
        except BaseException:
            self._take_back()
            raise
        finally:
            b.__class__, b.journal = session.plain_class, None
            hold(())
        return programs[:0]

    def _attempt(self, launch: Launch, programs: Any) -> None:
        b = self.session.builder
        _, y, z = launch.grid
        b.programs, b.active, b.journal = programs, None, []
        b.places = tuple(part.astype(np.int32) for part in (programs // (y * z), programs // z % y, programs % z))
        self.session.attempts += 1
        Replayed.at = None
        b.on_attempt()
        self.fn(**launch.arguments)

    def _take_back(self) -> None:
        self.session.builder.undo()
        self.session.builder.on_undo()


def _on_gpu(values: Iterable[Any]) -> bool:
    for x in values:
        if x.__class__ in NUMBERS:
            continue
        if isinstance(x, tuple):
            if _on_gpu(x):
                return True
        elif getattr(x.base if isinstance(x, TensorDescriptor) else x, "is_cuda", False):
            return True
    return False
