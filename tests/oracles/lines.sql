-- What `lines` prints of a ledger: a tree; a node is a beginning of [thread] file line … line op.
-- {ledger} is 'device' or 'host'; {step} a number, or NULL for all but slow first steps;
-- {phase} a phase, or NULL for all.
WITH RECURSIVE windows AS (
    SELECT rank, start_ns, step, dur_ns, any_value(host_start_ns) AS step_start_ns,
        row_number() OVER (PARTITION BY rank ORDER BY start_ns, step, dur_ns) AS nth
    FROM steps GROUP BY rank, start_ns, step, dur_ns
), slow AS (
    -- Longer than 1.5 times the median of at least three, and than 1.2 times any other.
    SELECT rank, min_by(step_start_ns, nth) AS step_start_ns FROM windows GROUP BY rank
    HAVING count(*) >= 3 AND min_by(dur_ns, nth) > 1.5 * median(dur_ns) AND median(dur_ns) > 0
        AND min_by(dur_ns, nth) > 1.2 * max(dur_ns) FILTER (nth > 1)
), chosen AS (
    SELECT *, ledger <> 'threads' AS is_main, coalesce(phase = {phase}, {phase} IS NULL) AS keep,
        dense_rank() OVER (ORDER BY rank, ledger, tid, stack_id, source, op) AS place
    FROM lines
    WHERE (ledger = {ledger} OR {ledger} = 'host' AND ledger = 'threads')
        AND step_start_ns IS NOT NULL AND coalesce(step = {step}, {step} IS NULL)
        AND ({step} IS NOT NULL
            OR NOT EXISTS (FROM slow s WHERE s.rank = lines.rank
                AND s.step_start_ns = lines.step_start_ns))
), up AS (
    SELECT rank, stack_id, caller_id, [line::VARCHAR] AS lines FROM stacks
    UNION ALL
    SELECT up.rank, up.stack_id, s.caller_id, list_prepend(s.line::VARCHAR, up.lines)
    FROM up JOIN stacks s ON s.rank = up.rank AND s.stack_id = up.caller_id
), paths AS (
    SELECT rank, stack_id, lines FROM up WHERE caller_id IS NULL
), owned AS (
    -- Stacks with a line of the user's own: the ops there have a source.
    SELECT rank, stack_id, true AS is_own FROM ops WHERE source IS NOT NULL AND stack_id IS NOT NULL
    UNION
    SELECT rank, stack_id, true FROM graph_nodes WHERE source IS NOT NULL AND stack_id IS NOT NULL
), places AS (
    SELECT place, stack_id IS NULL AND source IS NOT NULL AS alone, op::VARCHAR AS op,
        coalesce(lines, CASE WHEN source IS NOT NULL THEN [source::VARCHAR] END, []) AS lines,
        CASE WHEN ledger = 'threads' THEN 'thread ' || tid END AS thread,
        stack_id IS NULL OR coalesce(is_own, false) AS is_own
    FROM (SELECT DISTINCT place, rank, ledger, tid, stack_id, source, op FROM chosen)
    LEFT JOIN paths USING (rank, stack_id) LEFT JOIN owned USING (rank, stack_id)
), worded AS (
    SELECT place, alone, lines[1] AS line, list_filter([
            CASE WHEN thread IS NOT NULL THEN {'kind': 'thread', 'text': thread} END,
            CASE WHEN len(lines) > 0 AND NOT is_own THEN {'kind': 'rest', 'text': '(library code)'}
                WHEN len(lines) > 0 THEN NULL
                WHEN op IS NOT NULL THEN {'kind': 'rest', 'text': '(no source)'}
                WHEN {ledger} = 'device' THEN {'kind': 'rest', 'text': '(no op)'}
                ELSE {'kind': 'rest', 'text': '(between ops)'} END,
            CASE WHEN len(lines) > 0
                THEN {'kind': 'file', 'text': regexp_replace(lines[1], ':[^:]*$', '')} END
        ] || list_transform(lines, lambda l: {'kind': 'line', 'text': l})
        || [CASE WHEN op IS NOT NULL THEN {'kind': 'op', 'text': op} END], lambda x: x IS NOT NULL)
            AS words
    FROM places
), once AS (
    -- A row with a line alone is where that line is, if it is in one place only.
    SELECT node[-1].text AS line, any_value(node) AS node
    FROM (SELECT DISTINCT words[1:i] AS node
        FROM (SELECT words, unnest(range(1, len(words) + 1)) AS i FROM worded WHERE NOT alone)
        WHERE words[i].kind = 'line')
    GROUP BY ALL HAVING count(*) = 1
), ways AS (
    SELECT place, words[1:i] AS node FROM (
        SELECT place, words, unnest(range(1, len(words) + 1)) AS i FROM (
            SELECT place, coalesce(CASE WHEN alone THEN node END, words) AS words
            FROM worded LEFT JOIN once ON alone AND once.line = worded.line))
), nodes AS (
    SELECT node, row_number() OVER () AS nr FROM (SELECT DISTINCT node FROM ways)
), rows_of_nodes AS (
    -- Each row adds to every node on its way.
    SELECT nr, chosen.* FROM chosen JOIN ways USING (place) JOIN nodes USING (node)
), of_steps AS (
    SELECT nr, rank, step_start_ns, sum(time_ns) FILTER (keep) AS ns FROM rows_of_nodes GROUP BY ALL
), times AS (
    SELECT nr, median(coalesce(ns, 0)) AS median_ns, min(coalesce(ns, 0)) AS min_ns,
        max(coalesce(ns, 0)) AS max_ns
    FROM nodes CROSS JOIN (SELECT DISTINCT rank, step_start_ns FROM chosen)
    LEFT JOIN of_steps USING (nr, rank, step_start_ns) GROUP BY nr
), tree AS (
    SELECT nr, sum(time_ns) AS time_ns,
        coalesce(sum(time_ns) FILTER (phase = 'forward'), 0) AS forward_ns,
        coalesce(sum(time_ns) FILTER (phase = 'backward'), 0) AS backward_ns,
        coalesce(sum(time_ns) FILTER (phase = 'optimizer'), 0) AS optimizer_ns,
        coalesce(sum(time_ns) FILTER (phase = 'other'), 0) AS other_ns,
        coalesce(sum(time_ns) FILTER (phase = 'recompute'), 0) AS recompute_ns,
        coalesce(sum(calls) FILTER (phase = coalesce({phase}, 'forward')), 0) AS calls,
        coalesce(sum(calls) FILTER (phase = 'recompute'), 0) AS recompute_calls,
        sum(count) AS count, sum(flops) AS flops, sum(bytes) AS bytes,
        100 * sum(costed_ns) / nullif(sum(time_ns), 0) AS costed_pct,
        CASE WHEN sum(tensor_core_known_ns) > 0 THEN sum(tensor_core_ns) END AS tensor_core_ns,
        100 * sum(tensor_core_ns) / nullif(sum(tensor_core_known_ns), 0) AS tensor_core_pct,
        CASE WHEN {ledger} = 'device' THEN coalesce(sum(overlap_ns), 0) END AS overlap_ns,
        CASE WHEN {ledger} = 'device' THEN coalesce(sum(idle_caused_ns), 0) END AS idle_caused_ns,
        list(DISTINCT string_split(layer::VARCHAR, '.')) FILTER (op IS NOT NULL
            AND layer IS NOT NULL) AS layers,
        bool_or(op IS NOT NULL AND layer IS NULL) AS is_outside
    FROM rows_of_nodes WHERE keep GROUP BY nr
), common AS (
    -- The names that the layers of a node begin with; a star stands for numbers that differ.
    SELECT nr, list(name ORDER BY i) AS names FROM (
        SELECT nr, i, bool_and(is_one) OVER (PARTITION BY nr ORDER BY i) AS is_common, name FROM (
            SELECT nr, i, count(DISTINCT regexp_replace(layer[i], '\d+', '*', 'g')) = 1 AS is_one,
                CASE WHEN count(DISTINCT layer[i]) = 1 THEN min(layer[i])
                    ELSE min(regexp_replace(layer[i], '\d+', '*', 'g')) END AS name
            FROM (SELECT nr, unnest(layers) AS layer,
                    list_min(list_transform(layers, lambda l: len(l))) AS least
                FROM tree WHERE NOT is_outside),
                LATERAL (SELECT unnest(range(1, least + 1)) AS i)
            GROUP BY nr, i))
    WHERE is_common GROUP BY nr
), overall AS (
    -- Of a line its time wherever it is called from, recursion once.
    SELECT node[-1] AS word, CASE WHEN node[1].kind = 'thread' THEN node[1].text END AS thread,
        sum(time_ns) AS overall_ns,
        coalesce(sum(calls) FILTER (phase = coalesce({phase}, 'forward')), 0) AS overall_calls
    FROM rows_of_nodes JOIN nodes USING (nr)
    WHERE keep AND node[-1].kind = 'line' AND NOT list_contains(node[:-2], node[-1]) GROUP BY ALL
), ranked AS (
    SELECT nr, node, node[:-2] AS above, row_number() OVER (
        PARTITION BY node[:-2] ORDER BY time_ns DESC, idle_caused_ns DESC, node[-1].text) AS place
    FROM tree JOIN nodes USING (nr)
), below AS (
    SELECT nr, node, [(node[1].kind = 'thread')::BIGINT, place] AS way FROM ranked
        WHERE len(node) = 1
    UNION ALL
    SELECT r.nr, r.node, list_append(b.way, r.place) FROM ranked r JOIN below b ON r.above = b.node
), ordered AS (
    SELECT nr, node, row_number() OVER (ORDER BY way) - 1 AS node_id FROM below
)
SELECT o.node_id, p.node_id AS parent_id, len(o.node) AS depth, o.node[-1].kind AS kind,
    o.node[-1].text AS name, array_to_string(names, '.') AS module, time_ns,
    time_ns - coalesce(below_ns, 0) AS own_ns,
    CASE WHEN o.node[1].kind <> 'thread'
        THEN 100 * time_ns / greatest(1, (SELECT sum(time_ns) FROM chosen WHERE is_main)) END
            AS share_pct,
    median_ns, min_ns, max_ns, forward_ns, backward_ns, optimizer_ns, other_ns, recompute_ns, calls,
    recompute_calls, count, flops, bytes, costed_pct, tensor_core_ns, tensor_core_pct, overlap_ns,
    idle_caused_ns, overall_ns, overall_calls
FROM tree JOIN ordered o USING (nr) JOIN times USING (nr) LEFT JOIN common USING (nr)
LEFT JOIN ordered p ON p.node = o.node[:-2]
LEFT JOIN (SELECT above AS node, sum(time_ns) AS below_ns FROM ranked JOIN tree USING (nr)
    GROUP BY above) b
    ON b.node = o.node
LEFT JOIN overall a ON a.word = o.node[-1]
    AND a.thread IS NOT DISTINCT FROM CASE WHEN o.node[1].kind = 'thread' THEN o.node[1].text END
ORDER BY o.node_id
