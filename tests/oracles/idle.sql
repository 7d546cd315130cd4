-- What `idle --by AXIS` adds up, and the gaps themselves: the time of a device without work.
WITH ends AS (
    SELECT rank, device, start_ns, start_ns + greatest(dur_ns, 0) AS end_ns,
        max(start_ns + greatest(dur_ns, 0)) OVER (
            PARTITION BY rank, device ORDER BY start_ns, dur_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before_ns
    FROM activities WHERE device IS NOT NULL
), devices AS (
    SELECT rank, device, min(start_ns) AS first_ns, max(end_ns) AS last_ns,
        coalesce(sum(start_ns - before_ns) FILTER (start_ns > before_ns), 0) AS span_idle_ns
    FROM ends GROUP BY ALL
), recorded AS (
    SELECT rank, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM trace GROUP BY ALL
)
SELECT rank, device, last_ns - first_ns AS span_ns, span_idle_ns,
    greatest(last_ns, end_ns) - least(first_ns, start_ns) AS window_ns,
    span_ns - span_idle_ns AS busy_ns, window_ns - busy_ns AS idle_ns
FROM devices JOIN recorded USING (rank) ORDER BY ALL
