-- What `compare` says of two stores: parts of the difference of a step, and their standard errors.
-- All tables have a column `side`, 0 or 1. A row is of a metric of both sides (`total`), of a
-- `term`, or of what an `op` has in a term.
WITH timed AS (
    SELECT side, rank, device, step, start_ns AS b, start_ns + dur_ns AS f,
        step <> first_value(step) OVER (PARTITION BY side, rank ORDER BY file_at) AS is_later
    FROM (SELECT *, row_number() OVER () AS file_at FROM steps)
    WHERE idle_ns IS NOT NULL AND step IS NOT NULL
), work AS (
    SELECT *, row_number() OVER () AS nr, false AS is_copy FROM kernels
    UNION ALL BY NAME SELECT *, -row_number() OVER () AS nr, true AS is_copy FROM copies
), recorded AS (
    -- Without steps, all that was recorded of a device is one.
    SELECT w.side, w.rank, w.device, 0 AS step, least(min(w.start_ns), any_value(t.b)) AS b,
        greatest(max(w.start_ns + greatest(w.dur_ns, 0)), any_value(t.f)) AS f
    FROM work w
    JOIN (SELECT side, rank, min(start_ns) AS b, max(end_ns) AS f FROM trace GROUP BY ALL) t
        ON t.side = w.side AND t.rank = w.rank
    WHERE w.side NOT IN (SELECT side FROM timed) GROUP BY ALL
), shown AS (
    -- All steps but the first of each rank that has more.
    SELECT *, row_number() OVER () AS n, (dense_rank() OVER (PARTITION BY side ORDER BY step) - 1)
        * least(50, steps) // steps AS bin
    FROM (SELECT *, len(list_distinct(list(step) OVER (PARTITION BY side))) AS steps FROM (
        SELECT side, rank, device, step, b, f FROM timed
        QUALIFY is_later OR NOT bool_or(is_later) OVER (PARTITION BY side, rank)
        UNION ALL SELECT * FROM recorded))
), pieces AS (
    -- Activities, cut at the windows; one without a length is in that which begins with it.
    SELECT w.*, n, bin, shown.step AS of_step,
        least(start_ns + dur_ns, f) - greatest(start_ns, b) AS ns,
        coalesce('r' || call_id, 'o' || op_id, nr || '-' || n) AS call
    FROM work w JOIN shown ON w.side = shown.side AND w.rank = shown.rank
        AND w.device IS NOT DISTINCT FROM shown.device
        AND start_ns < f AND (start_ns + dur_ns > b OR dur_ns <= 0 AND start_ns >= b)
), busy AS (
    SELECT n, sum(greatest(0, until - greatest(since, coalesce(before, since)))) AS ns
    FROM (SELECT n, since, until, max(until) OVER (
            PARTITION BY n ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                AS before
        FROM (SELECT p.n, greatest(start_ns, b) AS since, greatest(start_ns, b) + ns AS until
            FROM pieces p JOIN shown USING (n)))
    GROUP BY n
), owners AS (
    -- A kernel of several ops or layers names them all.
    SELECT DISTINCT text, CASE WHEN text NOT LIKE chr(31) || '%' THEN text ELSE '(shared: '
        || array_to_string(list_sort(string_split(text[2:], chr(31))), ', ') || ')' END AS words
    FROM (SELECT unnest([shared_op::VARCHAR, shared_layer::VARCHAR, shared_direction::VARCHAR])
        AS text FROM pieces)
    WHERE text IS NOT NULL
), read AS (
    SELECT signature AS text, regexp_replace(made, '\] (?:bf16|f8e\dm\d(?:fnuz)?|f4e2m1(?:x2)?'
            || '|(?:bits|qi|qu|f|i|u|c)(?:128|64|32|16|8|4)|bool)\b', ']', 'g') AS dims,
        regexp_matches(signature, '^aten::(?:copy_|_to_copy|to)\(')
            AND len(list_distinct(regexp_extract_all(
            signature, '\] (f64|f32|f16|bf16|f8\w*)\b', 1))) > 1 AS is_cast
    FROM (SELECT signature, CASE WHEN regexp_matches(signature,
                '^aten::(?:_to_copy|to|empty\w*|new_empty\w*|zeros\w*|ones\w*)\(')
            -- Twice: a match takes the comma of the next.
            THEN regexp_replace(regexp_replace(signature, ', (?:5|6|7|15)([,)])', ', dtype\1', 'g'),
                ', (?:5|6|7|15)([,)])', ', dtype\1', 'g')
            ELSE signature END AS made
        FROM (SELECT DISTINCT signature::VARCHAR AS signature FROM pieces
            WHERE signature IS NOT NULL))
), said AS (
    SELECT side, rank, of_step, call, ns, bin, kernel, category, is_cast,
        row(device, is_copy, abs(nr), n) AS place,
        op_id IS NOT NULL AS is_placed, coalesce(o.words, op::VARCHAR) AS op,
        coalesce(l.words, layer::VARCHAR) AS layer,
        coalesce(d.words, direction::VARCHAR) AS direction, signature::VARCHAR AS signature, dims,
        coalesce(copy_kind::VARCHAR, kernel::VARCHAR) AS instead
    FROM pieces LEFT JOIN owners o ON o.text = shared_op::VARCHAR
    LEFT JOIN owners l ON l.text = shared_layer::VARCHAR
    LEFT JOIN owners d ON d.text = shared_direction::VARCHAR
    LEFT JOIN read ON read.text = signature::VARCHAR
), calls AS (
    SELECT side, any_value(bin) AS bin, sum(ns) AS ns,
        min_by({'op': op, 'layer': layer, 'direction': direction,
            'signature': signature, 'dims': dims, 'is_placed': is_placed, 'instead': instead},
                place) AS first,
        CASE WHEN bool_or(category = 'comm') THEN 'communication'
            WHEN bool_and(coalesce(category IN ('memcpy', 'memset'), false)) THEN 'copies'
            WHEN bool_or(coalesce(is_cast, false)) THEN 'casts' ELSE 'compute' END AS kind,
        list_sort(list(coalesce(kernel::VARCHAR, ''))) AS kernels
    FROM said GROUP BY side, rank, of_step, call
), summed AS (
    SELECT side, bin, kind,
        CASE WHEN first.op IS NOT NULL OR first.is_placed THEN first.layer END AS layer,
        coalesce(first.op, first.instead) AS op,
        CASE WHEN first.op IS NOT NULL OR first.is_placed THEN first.direction END AS direction,
        first.dims AS dims, first.signature AS signature, kernels, count(*) AS count, sum(ns) AS ns
    FROM calls GROUP BY ALL
), matched AS (
    -- Layers that both sides have hold at least half of the time of either's layers.
    SELECT coalesce(bool_and(2 * coalesce(common, 0) >= total), true) AS layers_match FROM (
        SELECT side, sum(ns) AS total, sum(ns) FILTER (both_sides) AS common FROM (
            SELECT side, ns, bool_or(side = 0 AND ns > 0) OVER same
                AND bool_or(side = 1 AND ns > 0) OVER same AS both_sides
            FROM (SELECT side, layer, sum(ns) AS ns FROM summed WHERE layer IS NOT NULL
                GROUP BY ALL)
            WINDOW same AS (PARTITION BY layer))
        GROUP BY side)
), leaves AS (
    SELECT * REPLACE (CASE WHEN layers_match THEN layer END AS layer) FROM summed, matched
), numbered AS (
    SELECT *, dense_rank() OVER (ORDER BY kind, layer, op, direction) AS g,
        dense_rank() OVER (ORDER BY kind, layer, op, direction, dims) AS d,
        dense_rank() OVER (ORDER BY kind, layer, op, direction, dims, signature) AS s,
        dense_rank() OVER (ORDER BY kind, layer, op, direction, dims, signature, kernels) AS l
    FROM leaves
), kinds AS (
    SELECT *, kind = 'compute' AND bool_or(is_new) OVER place AND bool_or(is_gone) OVER place
        AS is_replaced FROM (
        SELECT s, any_value(kind) AS kind, any_value(layer) AS layer, any_value(op) AS op,
            any_value(direction) AS direction, any_value(is_new) AS is_new,
            any_value(is_gone) AS is_gone
        FROM (SELECT s, kind, layer, op, direction,
                kind = 'compute' AND bool_and(side = 1) OVER (PARTITION BY g) AS is_new,
                kind = 'compute' AND bool_and(side = 0) OVER (PARTITION BY g) AS is_gone
            FROM numbered)
        GROUP BY s)
    WINDOW place AS (PARTITION BY layer, direction)
), times AS (
    SELECT side, bin, count(*) AS steps, sum(f - b) AS whole, sum(coalesce(busy.ns, 0)) AS busy
    FROM shown LEFT JOIN busy USING (n) GROUP BY ALL
), idled AS (
    SELECT side, bin, cause::VARCHAR AS cause, sum(time_ns) AS ns FROM (
        SELECT * FROM idle i JOIN (SELECT DISTINCT side, step, bin FROM shown) USING (side, step)
        WHERE side IN (SELECT side FROM timed)
        UNION ALL BY NAME
        SELECT *, 0 AS bin FROM idle WHERE side NOT IN (SELECT side FROM timed))
    GROUP BY ALL
), choices AS (
    -- All blocks, as 0; and for the jackknife all but one of either side, where both have three.
    SELECT 0 AS choice, NULL AS left_side, NULL AS left_bin
    UNION ALL
    SELECT row_number() OVER (), side, bin FROM (SELECT DISTINCT side, bin FROM shown)
    WHERE (SELECT min(blocks) FROM (SELECT 1 + max(bin) AS blocks FROM shown GROUP BY side)) >= 3
), lengths AS (
    SELECT choice, side, sum(steps)::DOUBLE AS steps, sum(whole) AS whole, sum(busy) AS busy
    FROM choices, times WHERE coalesce(side <> left_side OR bin <> left_bin, true) GROUP BY ALL
), idle_of AS (
    SELECT choice, cause, side, coalesce(any_value(i.ns), 0) / any_value(steps) AS ns
    FROM lengths CROSS JOIN (SELECT DISTINCT cause FROM idled)
    LEFT JOIN (SELECT choice, side, cause, sum(ns) AS ns FROM choices, idled
        WHERE coalesce(side <> left_side OR bin <> left_bin, true) GROUP BY ALL) i
            USING (choice, side, cause)
    GROUP BY ALL
), of_leaves AS (
    SELECT choice, g, d, s, l,
        coalesce(sum(count) FILTER (side = 0), 0)::DOUBLE AS ca,
        coalesce(sum(count) FILTER (side = 1), 0)::DOUBLE AS cb,
        coalesce(sum(ns) FILTER (side = 0), 0)::DOUBLE AS ta,
        coalesce(sum(ns) FILTER (side = 1), 0)::DOUBLE AS tb
    FROM choices, numbered WHERE coalesce(side <> left_side OR bin <> left_bin, true) GROUP BY ALL
), both_sides AS (
    SELECT o.*, a.steps AS na, b.steps AS nb, sum(ca) OVER of_s AS csa, sum(cb) OVER of_s AS csb,
        sum(ta) OVER of_s AS tsa, sum(tb) OVER of_s AS tsb, sum(ca) OVER of_d AS cda,
        sum(cb) OVER of_d AS cdb, sum(ca) OVER of_g AS cga, sum(cb) OVER of_g AS cgb,
        row_number() OVER of_s AS nth
    FROM of_leaves o JOIN lengths a ON a.side = 0 AND a.choice = o.choice
    JOIN lengths b ON b.side = 1 AND b.choice = o.choice
    WINDOW of_s AS (PARTITION BY o.choice, s), of_d AS (PARTITION BY o.choice, d),
        of_g AS (PARTITION BY o.choice, g)
), factors AS (
    -- Of n calls a step a share p has such dims, q such dtypes, r such kernels; each takes t, of
    -- such kernels u. What one side lacks is as on the other.
    SELECT *, (cga / na + cgb / nb) / 2 AS n, cgb / nb - cga / na AS dn,
        coalesce(cda / nullif(cga, 0), 0) AS pa, coalesce(cdb / nullif(cgb, 0), 0) AS pb,
        coalesce(csa / nullif(cda, 0), 0) AS qa, coalesce(csb / nullif(cdb, 0), 0) AS qb,
        coalesce(ca / nullif(csa, 0), 0) AS ra, coalesce(cb / nullif(csb, 0), 0) AS rb,
        coalesce(xa, xb, 0) AS t_a, coalesce(xb, xa, 0) AS t_b,
        coalesce(ya, yb, 0) AS ua, coalesce(yb, ya, 0) AS ub,
        (pa + pb) / 2 AS p, (qa + qb) / 2 AS q, (ra + rb) / 2 AS r, (t_a + t_b) / 2 AS t,
        (ua + ub) / 2 AS u, qa * t_a AS va, qb * t_b AS vb
    FROM (SELECT *, tsa / nullif(csa, 0) AS xa, tsb / nullif(csb, 0) AS xb,
        ta / nullif(ca, 0) AS ya, tb / nullif(cb, 0) AS yb FROM both_sides)
), parts AS (
    -- A part of a signature stands at one of its leaves.
    SELECT choice, s, unnest([
        {'part': 'calls', 'ns': CASE WHEN nth = 1 AND cga > 0 AND cgb > 0
            THEN dn * (pa * va + pb * vb) / 2 END},
        {'part': 'shapes', 'ns': CASE WHEN nth = 1 AND cga > 0 AND cgb > 0
            THEN n * (pb - pa) * (CASE WHEN cda > 0 THEN va ELSE vb END
                + CASE WHEN cdb > 0 THEN vb ELSE va END) / 2 END},
        {'part': 'precision', 'ns': CASE WHEN nth = 1 AND cda > 0 AND cdb > 0
            THEN n * p * (qb - qa) * t END},
        {'part': 'kernel choice', 'ns': CASE WHEN csa > 0 AND csb > 0
            THEN n * p * q * (rb - ra) * u END},
        {'part': 'kernel speed', 'ns': CASE WHEN csa > 0 AND csb > 0
            THEN n * p * q * r * (ub - ua) END},
        {'part': 'new', 'ns': CASE WHEN nth = 1 AND cga = 0 THEN tsb / nb END},
        {'part': 'gone', 'ns': CASE WHEN nth = 1 AND cgb = 0 THEN -tsa / na END}
    ], recursive := true) FROM factors
), of_calls AS (
    SELECT choice, op, ns, CASE WHEN kind = 'communication' THEN kind
        WHEN kind = 'copies' THEN 'copies: ' || part
        WHEN kind = 'casts' AND part IN ('new', 'gone', 'calls') THEN 'precision'
        WHEN is_replaced AND part IN ('new', 'gone') THEN 'replaced' ELSE part END AS name
    FROM parts JOIN kinds USING (s)
), metrics AS (
    SELECT choice, unnest(['time', 'busy', 'idle']) AS name, side,
        unnest([whole, busy, whole - busy]) / steps AS ns FROM lengths
    UNION ALL SELECT choice, 'idle.' || cause, side, ns FROM idle_of
), signed AS (
    SELECT choice, 'idle: ' || cause AS name, CASE side WHEN 1 THEN ns ELSE -ns END AS ns
        FROM idle_of
    -- What overlaps, the work less the time in which the device is busy, makes a step shorter.
    UNION ALL SELECT choice, 'overlap', CASE side WHEN 1 THEN busy / steps ELSE -busy / steps END
        FROM lengths
    UNION ALL SELECT choice, 'overlap', ta / na - tb / nb FROM both_sides
), deltas AS (
    SELECT choice, 'total' AS what, name, NULL AS op, any_value(ns) FILTER (side = 0) AS a,
        any_value(ns) FILTER (side = 1) AS b, b - a AS delta FROM metrics GROUP BY ALL
    UNION ALL SELECT choice, 'term', name, NULL, NULL, NULL, coalesce(sum(ns), 0) FROM of_calls
        GROUP BY ALL
    UNION ALL SELECT choice, 'term', name, NULL, NULL, NULL, sum(ns) FROM signed GROUP BY ALL
    UNION ALL SELECT choice, 'op', name, op, NULL, NULL, coalesce(sum(ns), 0) FROM of_calls
        WHERE choice = 0 GROUP BY ALL
), errors AS (
    SELECT what, name, sqrt(sum((n - 1) * v)) AS error FROM (
        SELECT what, name, left_side, count(*) AS n, var_pop(delta) AS v
        FROM deltas JOIN choices USING (choice) WHERE choice > 0 GROUP BY ALL)
    GROUP BY ALL
)
SELECT what, name, op, a, b, delta, error FROM deltas LEFT JOIN errors USING (what, name)
WHERE choice = 0
