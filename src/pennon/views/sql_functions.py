"""Functions of SQL that a view cannot call row by row, or not at all."""

from __future__ import annotations

#: Their values differ from call to call, from session to session, or with where a row lies.
VOLATILE = frozenset(
    """
    curdate current_catalog current_database current_date current_schema current_time current_timestamp current_timezone
    current_user getdate input_file_block_length input_file_block_start input_file_name localtime localtimestamp
    monotonically_increasing_id now rand randn random randstr session_user shuffle spark_partition_id sysdate uniform
    user uuid
    """.split()  # noqa: SIM905 (it is far shorter than a list)
)
#: Columns that Lance makes of where a row lies and when it came there: compaction and rewriting change them.
PLACES = frozenset({"_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"})
AGGREGATES = frozenset(
    """
    any any_value approx_count_distinct approx_distinct approx_median approx_percentile approx_percentile_cont
    approx_top_k array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or
    collect_list collect_set corr count count_distinct count_if count_min_sketch covar_pop covar_samp every first
    first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg kurtosis last last_value listagg max
    max_by mean median min min_by mode nth_value percentile percentile_approx percentile_cont percentile_disc regr_avgx
    regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness
    some std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum var var_pop var_samp variance
    """.split()  # noqa: SIM905 (it is far shorter than a list)
)
#: One row in, several out.
GENERATORS = frozenset(
    """
    collations explode explode_outer flatten_outer inline inline_outer json_tuple posexplode posexplode_outer
    sql_keywords stack unnest variant_explode variant_explode_outer
    """.split()  # noqa: SIM905 (it is far shorter than a list)
)
#: They run code of their caller's choice, read files, or tell of the worker's process and what is not in the catalog.
FORBIDDEN = frozenset(
    """
    current_user from_protobuf identifier input_file_block_length input_file_block_start input_file_name java_method
    python_worker_logs reflect session_user stream to_protobuf try_reflect user
    """.split()  # noqa: SIM905 (it is far shorter than a list)
)
