"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.outputs import OUTPUTS

if TYPE_CHECKING:
    from flashverify.case.case import Case

__all__ = ["COMPUTED", "SUBJECTS", "Mutant"]

COMPUTED = frozenset(OUTPUTS)
"""What a subject computes; other names of `Mutant.outputs` are arguments of kernels, which the sanitizer names."""

SUBJECTS = {
    "bundled": "flashverify.subjects.bundled:Bundled",
    "bundled-decode": "flashverify.subjects.decode:BundledDecode",
    "bundled-latent": "flashverify.subjects.latent:BundledLatent",
    "bundled-selected": "flashverify.subjects.selected:BundledSelected",
    "bundled-chunked": "flashverify.subjects.chunked:BundledChunked",
    "bundled-quantised": "flashverify.subjects.quantised:BundledQuantised",
    "bundled-quantised-decode": "flashverify.subjects.quantised:BundledQuantisedDecode",
    "bundled-ring": "flashverify.subjects.ring.subject:BundledRing",
}
"""The adapters that a mutated kernel package can stand behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted defect.

    Attributes:
        name: identifier, also of the Python package that is built.
        file: in `flashverify_kernels`.
        before: the text that is replaced; it must occur exactly once.
        after: what replaces it.
        outputs: outputs in which the defect shows; finding it in any of them counts; empty: any failure counts.
        modelled_on: the real-world defect.
        subject: the adapter whose cases show it, out of `SUBJECTS`.
        needs: parts of a case without which the changed code is not run or does the same, see `concerns`.
        gpu: only compiled code on a GPU shows it.
        semantics: name of the wrong semantics of `flashverify.diagnosis` that describes it; empty where none does.
        control: legitimate behaviour, which must stay quiet.
        site: of a generated mutant, its file, function and line with the edit as `{before -> after}`: what says what it is,
            where its name only counts.
    """

    name: str
    file: str
    before: str
    after: str
    outputs: tuple[str, ...]
    modelled_on: str
    subject: str = "bundled"
    needs: tuple[str, ...] = ()
    gpu: bool = False
    semantics: str = ""
    control: bool = False
    site: str = ""

    def concerns(self, case: Case) -> bool:
        """Whether `case` has all parts that the defect needs, so that judging it may show something.

        The names of parts are those of masks and logits, `dropout`, `paged`, `backward`, `launch` (launch parameters), `groups`
        (several query heads of a kv head), `kv_heads` (several) and `sequences` (several, in batches or packed); of a quantised case the format of
        its codes, `zeros`, `q_codes` (q in codes too), and how its scales are shared: `token_scales` by no two keys, `shared_scales` by blocks, `head_scales` by no two heads.
        """
        packed = case.mask.packed
        present = {
            "dropout": case.dropout > 0,
            "paged": case.storage.page_size is not None,
            "backward": case.grad.backward,
            "launch": bool(case.launch),
            "groups": case.heads_q > case.heads_kv,
            "sequences": (case.batch if packed is None else len(packed.lengths())) > 1,
        }
        how = case.quantised
        present["kv_heads"] = case.heads_kv > 1
        if how is not None:
            present |= {
                how.codes: True,
                "zeros": how.zeros,
                "q_codes": how.q,
                "token_scales": how.scales == "token",
                "shared_scales": how.scales == "block",
                "head_scales": how.scales != "tensor",
            }
        names = case.mask.parts() | case.logits.names() | {name for name, there in present.items() if there}
        return names.issuperset(self.needs)
