-- What `prof --by AXIS` shows, from the rows of kernels and copies; {axis} is a column of theirs.
SELECT {axis} AS key,
    count(*) AS count,
    sum(dur_ns) AS time_ns,
    100 * sum(dur_ns) / sum(sum(dur_ns)) OVER () AS share_pct,
    sum(dur_ns) / count(*) AS mean_ns,
    min(dur_ns) AS min_ns,
    max(dur_ns) AS max_ns,
    -- Kernels none of which has FLOPs are unknown, though copies have none.
    CASE WHEN count(*) FILTER (NOT is_copy) = 0 OR count(flops) FILTER (NOT is_copy) > 0
        OR count(*) FILTER (NOT is_copy AND cost_status = 'in_parent') > 0
        THEN sum(flops) END AS flops,
    sum(bytes) AS bytes,
    100 * coalesce(sum(dur_ns) FILTER (tensor_core = 'yes'), 0)
        / sum(dur_ns) FILTER (tensor_core IN ('yes', 'no')) AS tensor_core_pct,
    100 * coalesce(sum(dur_ns) FILTER (is_costed), 0) / sum(dur_ns) AS costed_pct,
    max(gbps) AS max_gbps
FROM work
GROUP BY ALL
