"""What the process that runs the subject of a probe answers."""

from __future__ import annotations

import msgspec

from flashverify.probing.questions import Value

__all__ = [
    "Answer",
    "Empty",
    "Explained",
    "Failed",
    "FormFitted",
    "Loaded",
    "Lost",
    "Reading",
    "Refuted",
    "Repeated",
    "Returned",
    "Seen",
    "Signature",
]


class Loaded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The subject as it declares itself.

    Attributes:
        name: in reports.
        evidence: what results rest on.
        declared: fields as Python text, by `supports`, `contract` and `form`.
        explicit: which of the three were stated by the author.
        launches: the declared launch configurations.
        function: it is made of one function.
    """

    name: str
    evidence: str
    declared: dict[str, dict[str, str]]
    explicit: tuple[str, ...]
    launches: tuple[tuple[tuple[str, int], ...], ...] = ()
    function: bool = True


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """How an output came back.

    Attributes:
        axes: such as `bhsd` of O or `bhs` of the LSE; empty where its shape is none of an attention's output.
        shape: of the tensor.
        dtype: of the tensor.
    """

    axes: str
    shape: tuple[int, ...]
    dtype: str


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The outputs beside what one reading of the case expects.

    Attributes:
        failing: outputs outside their bounds.
        ratio: the largest error beside its bound.
        distances: the squared error of each output beside its squared size.
    """

    failing: tuple[str, ...]
    ratio: float
    distances: dict[str, float]

    @property
    def apart(self) -> float:
        """The largest of the distances."""
        return max(self.distances.values(), default=0.0)

    @property
    def of_o(self) -> float:
        """The distance of O, which a mistake in gradients does not reach."""
        return self.distances.get("o", self.apart)

    @property
    def right(self) -> bool:
        """Every output is within its bounds."""
        return not self.failing


class Empty(msgspec.Struct, frozen=True, kw_only=True):
    """What rows that see no key hold: a number as text, `nan`, `mean of v` or `several values`; empty without such rows."""

    o: str = ""
    lse: str = ""


class Seen(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What one case showed.

    Attributes:
        dtype: of the case.
        raised: kind and text of the exception; empty where none was raised.
        read: what the subject looked at: names of fields of `Problem`, and of `Case` after `case.`.
        outputs: names of the returned ones.
        returned: of O and the LSE, how they came back.
        unusable: why the outputs cannot be compared, such as a wrong shape.
        readings: by name; `asked` is the case itself.
        bases: squared error of the LSE beside its squared size, by base.
        empty: rows without keys.
        outside: per output, what its elements outside the declared lengths hold, in the words of `Empty`.
        failure: a sentence with numbers about the worst element that is outside its bound.
        refused: why the declared `Supports` refuses the case; empty where it does not.
    """

    dtype: str = ""
    raised: str = ""
    read: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    returned: dict[str, Returned] = {}
    unusable: str = ""
    readings: dict[str, Reading] = {}
    bases: dict[str, float] = {}
    empty: Empty = Empty()
    outside: dict[str, str] = {}
    failure: str = ""
    refused: str = ""

    @property
    def ran(self) -> bool:
        """There are outputs to compare."""
        return not self.raised and not self.unusable

    @property
    def asked(self) -> Reading:
        """The outputs beside the case itself."""
        return self.readings["asked"]

    @property
    def right(self) -> bool:
        """It ran, and every output is within its bounds."""
        return self.ran and self.asked.right


class Repeated(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Differences of bits in words; none where all are equal. `raised` as in `Seen`."""

    differences: tuple[str, ...] = ()
    raised: str = ""


class Refuted(msgspec.Struct, frozen=True, kw_only=True):
    """A form that a case refuted.

    Attributes:
        form: as Python text.
        case: the case with the largest error beside its bound.
        output: of that error.
        ratio: that error beside its bound.
    """

    form: str
    case: str
    output: str
    ratio: float


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of an output that a model of one rounding predicts element by element, on fitted and on held-out cases."""

    output: str
    words: str
    explained: float


class FormFitted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to `FormFit`.

    Attributes:
        found: fields of the smallest form that explains every fitted case; None where none does.
        others: fields of forms as small that explain every fitted case too.
        refuted: smaller forms, and those as small that do not.
        held_out: cases that were held out and judged.
        failed: those of them that the form does not explain.
        signatures: rounded steps that are seen in the errors.
        gross: outputs whose errors are no matter of rounding; nothing was fitted to them.
        failures: of these, a sentence and the text of a case.
        modelled: every model of a rounding was tried.
        searched: a form was found, or every one was tried.
        reads_outputs: the share of the rounding of O that reaches the gradients: 1 of a backward that starts from the returned O, 0 of one
            that keeps its own; None where it cannot be told.
        tiles: keys of a tile under which the order of the sums is predicted, 0 where none is.
        worst: the largest error beside its bound over all cases, by output.
        declared: what refutes the form that the subject declares; None where nothing does.
    """

    found: dict[str, Value] | None
    others: tuple[dict[str, Value], ...] = ()
    refuted: tuple[Refuted, ...] = ()
    fitted: int = 0
    held_out: int = 0
    failed: tuple[Refuted, ...] = ()
    signatures: tuple[Signature, ...] = ()
    gross: tuple[str, ...] = ()
    failures: dict[str, tuple[str, str]] = {}
    modelled: bool = True
    searched: bool = True
    reads_outputs: float | None = None
    tiles: int = 0
    worst: dict[str, float] = {}
    declared: Refuted | None = None


class Explained(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A sentence about a failure, and the name of its semantics; empty where none is known."""

    name: str = ""
    sentence: str = ""


class Lost(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The process died or did not end in time: why."""

    why: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The question could not be asked: the kind of our own error, or empty where something else raised, and its text."""

    kind: str
    message: str


Answer = Loaded | Seen | Repeated | FormFitted | Explained | Failed
