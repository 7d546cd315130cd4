"""Many ranks: their collectives and clocks, and where a distributed job loses its time.

`collectives` finds each rank's members, `instances` which belong together, `clocks` how the ranks'
clocks differ, `waits` who waited for whom and how fast data moved. `rank_parts` splits a rank's
time, `slow_ranks` compares ranks, `late_hosts` finds what hosts did meanwhile. `rank_graph`,
`job_graph`, `replay`, `critical_path` and `what_if` find the gains of changes; of many ranks
`segments` and `segment_job`.
"""
