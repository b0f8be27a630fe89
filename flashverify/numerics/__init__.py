"""Per-element forward error bounds of attention, forward and backward, for a kernel of a declared numerical form.

Prepare a `BoundInputs`, give `forward_bounds` and `backward_bounds` the oracle's results, and compare `|x - oracle| <= bound + self_error`.
"""

from flashverify.formats import FORMATS, Format, format_of
from flashverify.numerics.backward import backward_bounds
from flashverify.numerics.bound_inputs import BoundInputs
from flashverify.numerics.form import Form
from flashverify.numerics.forward import forward_bounds
from flashverify.numerics.primitives import ARCHITECTURES, Architecture, architecture_of, dot_coefficient
from flashverify.numerics.readings import from_outputs, readings
from flashverify.numerics.result import BackwardBounds, ForwardBounds, OutputBound, StrictBound

__all__ = [
    "ARCHITECTURES",
    "FORMATS",
    "Architecture",
    "BackwardBounds",
    "BoundInputs",
    "Form",
    "Format",
    "ForwardBounds",
    "OutputBound",
    "StrictBound",
    "architecture_of",
    "backward_bounds",
    "dot_coefficient",
    "format_of",
    "forward_bounds",
    "from_outputs",
    "readings",
]
