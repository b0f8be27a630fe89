"""Generated mutants that no input can show, each with the reason.

Accepted inputs are meant, of the adapters that run the kernels, interpreted. A name is that of `generated(everything=True)`.
"""

from __future__ import annotations

__all__ = ["EQUIVALENT"]

_REASONS = {
    "Where the head has as many channels as the tile, the mask of the channels is true everywhere.": (
        "decode_decode_kernel_constexpr_2 decode_decode_kernel_constexpr_6 decode_decode_kernel_constexpr_10 "
        "decode_decode_kernel_constexpr_12 delta_delta_kernel_constexpr_2 delta_delta_kernel_constexpr_4 "
        "dkdv_dkdv_kernel_constexpr_2 dkdv_dkdv_kernel_constexpr_4 dkdv_dkdv_kernel_constexpr_8 "
        "dkdv_dkdv_kernel_constexpr_10 dkdv_dkdv_kernel_constexpr_17 dkdv_dkdv_kernel_constexpr_19 "
        "dq_dq_kernel_constexpr_2 dq_dq_kernel_constexpr_4 dq_dq_kernel_constexpr_8 dq_dq_kernel_constexpr_10 "
        "dq_dq_kernel_constexpr_18 forward_forward_kernel_constexpr_2 forward_forward_kernel_constexpr_6 "
        "forward_forward_kernel_constexpr_12 forward_forward_kernel_constexpr_14 merge_load_partials_constexpr_2 "
        "merge_merged_rows_constexpr_2 merge_merge_kernel_constexpr_2 merge_merge_kernel_constexpr_4 "
        "address_locate_condition_1 pages_row_tile_condition_1 merge_channels_condition_1"
    ),
    "Every pair of a full tile is visible, or its query is padding of weight 0: applying the mask changes nothing.": (
        "decode_decode_kernel_constexpr_3 decode_decode_kernel_constexpr_7 dkdv_dkdv_kernel_constexpr_5 "
        "dkdv_dkdv_kernel_constexpr_12 dkdv_dkdv_kernel_constexpr_14 dq_dq_kernel_constexpr_5 "
        "dq_dq_kernel_constexpr_11 dq_dq_kernel_constexpr_13 dq_dq_kernel_constexpr_15 "
        "forward_forward_kernel_constexpr_3 forward_forward_kernel_constexpr_7 forward_forward_kernel_constexpr_9 "
        "mask_visible_condition_1 softmax_online_step_condition_1 softmax_weights_condition_1 "
        "softmax_online_step_choice_1 softmax_score_gradient_condition_1"
    ),
    "What `visible` returns for a full tile is never read.": "mask_visible_compare_5",
    "A tile without a visible pair adds exact zeros: looking for one only saves time.": (
        "forward_forward_kernel_sign_1 dq_dq_kernel_sign_1 dkdv_dkdv_kernel_sign_1"
    ),
    "Where the loop starts at `FULL`, the segment `LEADING` is empty: it begins and ends where the walk begins.": (
        "forward_forward_kernel_choice_1 dq_dq_kernel_choice_1 decode_decode_kernel_choice_1 "
        "dkdv_dkdv_kernel_choice_1 forward_forward_kernel_conjunct_1 dq_dq_kernel_conjunct_1 "
        "dkdv_dkdv_kernel_conjunct_1"
    ),
    "Fewer tiles are taken for full, or more are visited; the mask decides every pair of them, and an invisible one adds an exact zero.": (
        "mask_sure_end_choice_1 mask_sure_end_limit_2 mask_sure_begin_limit_1 schedule_tile_schedule_confuse_2 "
        "schedule_tile_schedule_confuse_3 schedule_tile_schedule_limit_38 decode_decode_kernel_term_14"
    ),
    "It differs only for a tile that starts at the end of the queries, which has no visible row and whose walk is empty or masked.": (
        "mask_sure_end_limit_1 schedule_tile_schedule_compare_3 schedule_tile_schedule_where_2"
    ),
    "A walk that begins at `sq` or behind it is as empty as one that begins at `sq`.": (
        "mask_key_begin_limit_1 schedule_tile_schedule_limit_17"
    ),
    "A limit below the first whole tile is rounded down to 0, and 1 is as far below it as 0.": (
        "schedule_tile_schedule_constant_3"
    ),
    "The number only tells one value of an enumeration from the others.": (
        "schedule_module_constant_5 pages_module_constant_3"
    ),
    "Rows between the declared and the stored end have q = 0, dO = 0, delta = 0 and LSE = +inf: the further tiles add exact zeros.": (
        "dkdv_dkdv_kernel_confuse_8"
    ),
    "The fill reaches rows without values only, whose rowsum(dO * O) and dLSE are 0 anyway.": (
        "delta_delta_kernel_constant_1"
    ),
    "The other operand is fp32, and the product is promoted to it: the conversion of fp16 and bf16 is exact.": (
        "delta_delta_kernel_cast_1 delta_delta_kernel_cast_2 merge_load_partials_cast_1"
    ),
    "The other factor is fp32, to which the product is promoted with the same rounding.": "logits_logits_cast_1",
    "The argument is declared as uint32 already.": "dropout_keep_tile_cast_1 dropout_keep_tile_cast_2",
    "The maximum of a boolean is taken as an int32 anyway.": "mask_any_visible_cast_1",
    "The number is the same in 64 bits.": "address_locate_cast_1 decode_split_range_cast_1 decode_split_range_cast_2",
    "A constant 0 and a tensor of 0 are the same row.": "address_span_factor_2",
    "Lengths beyond the rows are refused, so the clamp at one row more never acts on what is accepted.": (
        "address_declared_limit_1"
    ),
    "The first tile that is visited rescales the sum by exp2(-inf) = 0; a row that visits none keeps m = -inf, and its LSE is -inf + log2(1).": (
        "decode_decode_kernel_constant_6"
    ),
    "A row without keys has an accumulator of 0 and m = -inf: neither 0 / 2 nor -inf + log2(2) is another value.": (
        "softmax_finish_constant_2"
    ),
    "In a row without keys m = -inf, and exp2(-inf - 1) is the 0 that exp2(-inf) is.": "softmax_take_sink_constant_2",
    "At |x| = 1/2, the only place where it differs, both branches meet the stated error of `tanh`.": (
        "logits_tanh_compare_1"
    ),
    "Another division of the tiles among the splits: each tile is still in exactly one, and ends are cut at the last key.": (
        "decode_split_range_limit_1 decode_split_range_arithmetic_2"
    ),
    "A range without tiles gets one, which no segment of its schedule overlaps.": "decode_split_range_constant_1",
    "A step behind the last partial reads masked lanes only, of weight 0.": (
        "merge_statistics_limit_1 merge_statistics_limit_7 merge_merged_rows_limit_1"
    ),
    "The fp16 zero becomes fp32 with the first fp32 sum; the compiler refuses the change of type.": (
        "merge_statistics_dtype_2 decode_decode_kernel_dtype_3"
    ),
    "Programs behind the last row are masked.": "host_merge_launch_factor_5 host_merge_launch_arithmetic_3",
    "Without pages the number of the page is never read.": "pages_places_constant_1 pages_places_factor_1",
    "Without pages the number of the page is 0, and so is its offset.": "pages_place_offsets_condition_1",
    "Tables of a pattern that is shared by two batches or heads are built twice, with the same entries.": (
        "host_blocks_from_bool_bound_1"
    ),
    "`torch.cat` returns a contiguous tensor, and a conversion keeps it so.": "host_blocks_tables_layout_1",
    "The function that calls it has made both tensors dense.": (
        "host_merge_merge_forward_delete_1 host_merge_merge_forward_layout_1"
    ),
    "More channels of a tile than needed are masked: the choice of a tile.": (
        "host_config_padded_dim_constant_2 host_config_padded_dim_term_1"
    ),
    "A row of the tree has more words than it needs, which hold 0 and are not read.": "host_tree_from_parents_term_6",
    "Dropout with p = 0 keeps every pair and divides by 1.": "host_terms_check_terms_compare_2",
    "A tile begins before the last key, so that one key more changes no limit.": "schedule_tile_schedule_limit_25",
    "The delta of rows behind the declared end is stored as 0.": "dkdv_dkdv_kernel_confuse_28",
    "What is filled in is multiplied by a remainder of 0.": "schedule_squeeze_fill_1 schedule_squeeze_fill_2",
    "Without a left edge of the window no key is before the first one that is kept.": (
        "decode_decode_kernel_condition_5"
    ),
    "The segments end at the last key, whatever the end of a split.": "decode_split_range_limit_3",
    "An exponent of -inf less 1 is one of -inf.": "merge_statistics_constant_5",
    "The rows of O behind the declared end are 0, and so is their delta, by their LSE.": "delta_delta_kernel_confuse_5",
    "Rows behind the declared end have LSE = +inf, so that their weights are 0 where the mask lets them pass.": (
        "dkdv_dkdv_kernel_confuse_19"
    ),
    "A row behind the declared end is reset after the walk.": "forward_forward_kernel_confuse_28",
    "A key behind the declared end reaches nothing but its own rows of dK and dV, which are set to 0.": (
        "dkdv_dkdv_kernel_confuse_7"
    ),
    "A tile wider than the channels holds masked ones: any width gives the same values. A narrow one brings back a defect of assemblers, "
    "which `flashverify compile` reports.": (
        "host_arguments_compile_constants_condition_1 host_arguments_compile_constants_compare_1 "
        "host_arguments_compile_constants_sign_1 host_arguments_compile_constants_delete_1 host_arguments_compile_constants_call_1"
    ),
    "The weights of a padded row reach nothing but its own row of dQ, which is not kept.": "dq_dq_kernel_constant_2",
    "Both limits are multiples of the step.": "schedule_tile_schedule_bound_3",
    "Options are always given.": "host_launch_forward_delete_1 host_launch_backward_delete_1",
    "The forward, which makes O, gives it a last stride of 1.": (
        "host_launch_backward_layout_4 host_launch_backward_delete_5 host_launch_backward_compare_2 "
        "host_launch_backward_choice_4"
    ),
    "It computes dK and dV where nobody asked for them, and drops them: only time shows it.": "host_launch_backward_condition_4",
    "In the memory of the CPU, where the kernels are interpreted, the bits are there already; a GPU refuses them.": (
        "host_tree_from_parents_cast_1"
    ),
}

EQUIVALENT: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""Why nothing shows the mutant, by its name."""
