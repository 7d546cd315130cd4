-- What `idle --by AXIS` adds up, and the gaps themselves: the time of a device without work.
WITH ends AS (
    SELECT rank, device, start_ns, start_ns + greatest(dur_ns, 0) AS end_ns,
        max(start_ns + greatest(dur_ns, 0)) OVER (
            PARTITION BY rank, device ORDER BY start_ns, dur_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before_ns
    FROM activities WHERE device IS NOT NULL
)
SELECT rank, device, max(end_ns) - min(start_ns) AS span_ns,
    coalesce(sum(start_ns - before_ns) FILTER (start_ns > before_ns), 0) AS span_idle_ns
FROM ends GROUP BY ALL ORDER BY ALL
