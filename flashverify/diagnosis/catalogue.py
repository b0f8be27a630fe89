"""Every wrong semantics that a diagnosis can name, the more particular ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.hypotheses.accumulation import ACCUMULATION
from flashverify.diagnosis.hypotheses.alignment import ALIGNMENT
from flashverify.diagnosis.hypotheses.backward_strides import BACKWARD_STRIDES
from flashverify.diagnosis.hypotheses.bands import BANDS
from flashverify.diagnosis.hypotheses.cached_prefix import CACHED_PREFIX
from flashverify.diagnosis.hypotheses.cap_gradient import CAP_GRADIENT
from flashverify.diagnosis.hypotheses.caps import CAPS
from flashverify.diagnosis.hypotheses.channels import CHANNELS
from flashverify.diagnosis.hypotheses.code_formats import CODE_FORMATS
from flashverify.diagnosis.hypotheses.cut_chains import CUT_CHAINS
from flashverify.diagnosis.hypotheses.deltas import DELTAS
from flashverify.diagnosis.hypotheses.denominator import DENOMINATOR
from flashverify.diagnosis.hypotheses.draws import DRAWS
from flashverify.diagnosis.hypotheses.draws_in_tiles import DRAWS_IN_TILES
from flashverify.diagnosis.hypotheses.draws_of_walks import DRAWS_OF_WALKS
from flashverify.diagnosis.hypotheses.dropout import DROPOUT
from flashverify.diagnosis.hypotheses.dropout_in_tiles import DROPOUT_IN_TILES
from flashverify.diagnosis.hypotheses.edges import EDGES
from flashverify.diagnosis.hypotheses.empty_gradients import EMPTY_GRADIENTS
from flashverify.diagnosis.hypotheses.factors import FACTORS
from flashverify.diagnosis.hypotheses.gradient_stores import GRADIENT_STORES
from flashverify.diagnosis.hypotheses.gradients import GRADIENTS
from flashverify.diagnosis.hypotheses.group_sums import GROUP_SUMS
from flashverify.diagnosis.hypotheses.head_offsets import HEAD_OFFSETS
from flashverify.diagnosis.hypotheses.heads import HEADS
from flashverify.diagnosis.hypotheses.hidden_maximum import HIDDEN_MAXIMUM
from flashverify.diagnosis.hypotheses.keys_behind import KEYS_BEHIND
from flashverify.diagnosis.hypotheses.lengths import LENGTHS
from flashverify.diagnosis.hypotheses.lengths_of_others import LENGTHS_OF_OTHERS
from flashverify.diagnosis.hypotheses.local_windows import LOCAL_WINDOWS
from flashverify.diagnosis.hypotheses.lse import LSE
from flashverify.diagnosis.hypotheses.lse_stores import LSE_STORES
from flashverify.diagnosis.hypotheses.masking import MASKING
from flashverify.diagnosis.hypotheses.maximum import MAXIMUM
from flashverify.diagnosis.hypotheses.maximum_gradient import MAXIMUM_GRADIENT
from flashverify.diagnosis.hypotheses.merge_parts import MERGE_PARTS
from flashverify.diagnosis.hypotheses.merge_weights import MERGE_WEIGHTS
from flashverify.diagnosis.hypotheses.merging import MERGES
from flashverify.diagnosis.hypotheses.operands import OPERANDS
from flashverify.diagnosis.hypotheses.packed_counts import PACKED_COUNTS
from flashverify.diagnosis.hypotheses.packed_places import PACKED_PLACES
from flashverify.diagnosis.hypotheses.padded_tables import PADDED_TABLES
from flashverify.diagnosis.hypotheses.page_entries import PAGE_ENTRIES
from flashverify.diagnosis.hypotheses.page_lengths import PAGE_LENGTHS
from flashverify.diagnosis.hypotheses.partly_read_codes import PARTLY_READ_CODES
from flashverify.diagnosis.hypotheses.pattern_places import PATTERN_PLACES
from flashverify.diagnosis.hypotheses.patterns import PATTERNS
from flashverify.diagnosis.hypotheses.philox_rounds import PHILOX_ROUNDS
from flashverify.diagnosis.hypotheses.quantised import QUANTISED
from flashverify.diagnosis.hypotheses.queries_of_rows import QUERIES_OF_ROWS
from flashverify.diagnosis.hypotheses.relative_bias import RELATIVE
from flashverify.diagnosis.hypotheses.relative_gradient import RELATIVE_GRADIENT
from flashverify.diagnosis.hypotheses.rescaling import RESCALING
from flashverify.diagnosis.hypotheses.ring_visits import RING_VISITS
from flashverify.diagnosis.hypotheses.rows import ROWS
from flashverify.diagnosis.hypotheses.scaled_terms import SCALED_TERMS
from flashverify.diagnosis.hypotheses.scales import SCALES
from flashverify.diagnosis.hypotheses.selection import SELECTIONS
from flashverify.diagnosis.hypotheses.shared_kv import SHARED_KV
from flashverify.diagnosis.hypotheses.shifted_distances import SHIFTED_DISTANCES
from flashverify.diagnosis.hypotheses.sink_gradient import SINK_GRADIENT
from flashverify.diagnosis.hypotheses.sink_places import SINK_PLACES
from flashverify.diagnosis.hypotheses.softmax import SOFTMAX
from flashverify.diagnosis.hypotheses.softmax_gradient import SOFTMAX_GRADIENT
from flashverify.diagnosis.hypotheses.statistics import STATISTICS
from flashverify.diagnosis.hypotheses.stored_pairs import STORED_PAIRS
from flashverify.diagnosis.hypotheses.sums import SUMS
from flashverify.diagnosis.hypotheses.table_strides import TABLE_STRIDES
from flashverify.diagnosis.hypotheses.term_places import TERM_PLACES
from flashverify.diagnosis.hypotheses.term_values import TERM_VALUES
from flashverify.diagnosis.hypotheses.terms import TERMS
from flashverify.diagnosis.hypotheses.tile_counts import TILE_COUNTS
from flashverify.diagnosis.hypotheses.tree_depths import TREE_DEPTHS
from flashverify.diagnosis.hypotheses.tree_parents import TREE_PARENTS
from flashverify.diagnosis.hypotheses.trees import TREES
from flashverify.diagnosis.hypotheses.unasked_parts import UNASKED_PARTS
from flashverify.diagnosis.hypotheses.values_of_walks import VALUES_OF_WALKS
from flashverify.diagnosis.hypotheses.walk_ends import WALK_ENDS
from flashverify.diagnosis.hypotheses.walks import WALKS
from flashverify.diagnosis.hypotheses.wide_integers import WIDE_INTEGERS
from flashverify.diagnosis.hypotheses.window_sides import WINDOW_SIDES
from flashverify.diagnosis.hypotheses.wiring import WIRING
from flashverify.diagnosis.hypotheses.wiring_of_rows import WIRING_OF_ROWS
from flashverify.diagnosis.hypotheses.zeros import ZEROS
from flashverify.diagnosis.padding_experiment import PADDINGS
from flashverify.diagnosis.state.candidates import KEPT

if TYPE_CHECKING:
    from flashverify.diagnosis.hypothesis import Semantics

__all__ = ["NAMES", "SEMANTICS"]

SEMANTICS: tuple[Semantics, ...] = (
    *BANDS,
    *ALIGNMENT,
    *WINDOW_SIDES,
    *LOCAL_WINDOWS,
    *TREES,
    *TREE_PARENTS,
    *PATTERNS,
    *PATTERN_PLACES,
    *UNASKED_PARTS,
    *TABLE_STRIDES,
    *SELECTIONS,
    *SHARED_KV,
    *FACTORS,
    *QUANTISED,
    *CODE_FORMATS,
    *PARTLY_READ_CODES,
    *PAGE_LENGTHS,
    *LENGTHS,
    *KEYS_BEHIND,
    *PACKED_COUNTS,
    *PACKED_PLACES,
    *PADDED_TABLES,
    *LENGTHS_OF_OTHERS,
    *WIDE_INTEGERS,
    *TERMS,
    *SCALED_TERMS,
    *TERM_PLACES,
    *TREE_DEPTHS,
    *TERM_VALUES,
    *SINK_PLACES,
    *CAPS,
    *RELATIVE,
    *RELATIVE_GRADIENT,
    *SHIFTED_DISTANCES,
    *SCALES,
    *CHANNELS,
    *VALUES_OF_WALKS,
    *SOFTMAX,
    *LSE,
    *MERGES,
    *MERGE_PARTS,
    *MERGE_WEIGHTS,
    *RESCALING,
    *HIDDEN_MAXIMUM,
    *MAXIMUM,
    *DENOMINATOR,
    *WIRING,
    *PAGE_ENTRIES,
    *LSE_STORES,
    *ZEROS,
    *HEADS,
    *HEAD_OFFSETS,
    *OPERANDS,
    *BACKWARD_STRIDES,
    *STATISTICS,
    *GRADIENTS,
    *SUMS,
    *GROUP_SUMS,
    *CAP_GRADIENT,
    *DELTAS,
    *SOFTMAX_GRADIENT,
    *MAXIMUM_GRADIENT,
    *CUT_CHAINS,
    *SINK_GRADIENT,
    *DROPOUT,
    *DROPOUT_IN_TILES,
    *DRAWS,
    *PHILOX_ROUNDS,
    *DRAWS_IN_TILES,
    *DRAWS_OF_WALKS,
    *WALKS,
    *TILE_COUNTS,
    *EDGES,
    *WALK_ENDS,
    *CACHED_PREFIX,
    *ACCUMULATION,
    *ROWS,
    *EMPTY_GRADIENTS,
    *MASKING,
    *GRADIENT_STORES,
    *WIRING_OF_ROWS,
    *QUERIES_OF_ROWS,
    *STORED_PAIRS,
    *RING_VISITS,
)
"""Those that are told by their values."""

NAMES: tuple[str, ...] = (*(s.name for s in SEMANTICS), *PADDINGS, "not-written", *KEPT)
"""Names of all of them, also of those that are told by an experiment."""
