-- What differs in sums of table `lines`, and of the tables that they are of: no row, if nothing.
WITH owners AS (
    -- The user's own line of a stack, as the ops there have it.
    SELECT rank, stack_id, any_value(source::VARCHAR) AS own
    FROM (SELECT rank, stack_id, source FROM ops
        UNION ALL SELECT rank, stack_id, source FROM graph_nodes)
    WHERE source IS NOT NULL GROUP BY ALL
), written AS (
    SELECT lines.* REPLACE (coalesce(own, source::VARCHAR) AS source, phase::VARCHAR AS phase,
        layer::VARCHAR AS layer)
    FROM lines LEFT JOIN owners USING (rank, stack_id)
), ends AS (
    SELECT rank, device, start_ns AS b, start_ns + dur_ns AS f, max(start_ns + dur_ns) OVER (
            PARTITION BY rank, device ORDER BY start_ns, dur_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM activities
), on_host AS (
    -- The thread of a step fills it; without steps the recording.
    SELECT DISTINCT rank, step, host_start_ns AS start_ns, host_dur_ns AS ns FROM steps
    UNION ALL SELECT rank, NULL, start_ns, end_ns - start_ns FROM trace ANTI JOIN steps USING (rank)
), sums AS (
    SELECT true AS is_of_lines, 'work' AS what, rank, step, phase, layer, source,
        sum(count) AS n, sum(time_ns) AS ns, sum(flops) AS flops, sum(bytes) AS bytes,
        sum(costed_ns) AS costed_ns, sum(tensor_core_ns) AS tensor_core_ns,
        sum(tensor_core_known_ns) AS known_ns
    FROM written WHERE ledger = 'device' GROUP BY ALL HAVING sum(count) > 0
    UNION ALL BY NAME
    SELECT false AS is_of_lines, 'work' AS what, rank, step,
        CASE WHEN recompute THEN 'recompute' ELSE direction::VARCHAR END AS phase,
        layer::VARCHAR AS layer, source::VARCHAR AS source,
        count(*) AS n, sum(dur_ns) AS ns, sum(flops) AS flops, sum(bytes) AS bytes,
        sum(CASE WHEN cost_status IN ('ok', 'assumed', 'in_parent') THEN dur_ns ELSE 0 END)
            AS costed_ns,
        sum(CASE WHEN tensor_core = 'yes' THEN dur_ns ELSE 0 END) AS tensor_core_ns,
        sum(CASE WHEN tensor_core IN ('yes', 'no') THEN dur_ns ELSE 0 END) AS known_ns
    FROM activities GROUP BY ALL
    UNION ALL BY NAME
    SELECT true AS is_of_lines, 'ops' AS what, rank, phase, layer, source, sum(count) AS n,
        sum(time_ns) AS ns, sum(flops) AS flops, sum(bytes) AS bytes, sum(costed_ns) AS costed_ns
    FROM written WHERE ledger <> 'device' AND op IS NOT NULL GROUP BY ALL
    UNION ALL BY NAME
    SELECT false AS is_of_lines, 'ops' AS what, rank,
        CASE WHEN recompute THEN 'recompute' ELSE direction::VARCHAR END AS phase,
        layer::VARCHAR AS layer, source::VARCHAR AS source,
        count(*) AS n, sum(self_ns) AS ns, sum(flops) AS flops, sum(bytes) AS bytes,
        sum(CASE WHEN cost_status IN ('ok', 'assumed', 'in_parent') THEN self_ns ELSE 0 END)
            AS costed_ns
    FROM ops GROUP BY ALL
    UNION ALL BY NAME
    SELECT true AS is_of_lines, 'busy' AS what, rank, sum(time_ns) - sum(overlap_ns) AS ns
    FROM written WHERE ledger = 'device' GROUP BY ALL
    UNION ALL BY NAME
    SELECT false AS is_of_lines, 'busy' AS what, rank,
        sum(greatest(0, f - greatest(b, coalesce(before, b)))) AS ns
    FROM ends GROUP BY ALL
    UNION ALL BY NAME
    SELECT true AS is_of_lines, 'idle' AS what, rank, step, sum(idle_caused_ns) AS ns
    FROM written WHERE ledger = 'device' GROUP BY ALL HAVING sum(idle_caused_ns) > 0
    UNION ALL BY NAME
    SELECT false AS is_of_lines, 'idle' AS what, rank, step, sum(time_ns) AS ns
    FROM idle SEMI JOIN activities USING (rank) GROUP BY ALL
    UNION ALL BY NAME
    SELECT true AS is_of_lines, 'host' AS what, rank, step, sum(time_ns) AS ns
    FROM written WHERE ledger = 'host' GROUP BY ALL HAVING sum(time_ns) > 0
    UNION ALL BY NAME
    SELECT false AS is_of_lines, 'host' AS what, rank, step, sum(ns) AS ns
    FROM on_host WHERE ns > 0 GROUP BY ALL
)
SELECT any_value(is_of_lines) AS is_of_lines, * EXCLUDE (is_of_lines)
FROM sums GROUP BY ALL HAVING count(*) <> 2 OR count(DISTINCT is_of_lines) <> 2
