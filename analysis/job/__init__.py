"""Many ranks: what they say to one another, and where a distributed job loses its time.

`collectives` finds each rank's members, `instances` which belong together, `clocks` how the ranks'
clocks differ, `waits` who waited for whom and how fast data moved. `parts` splits a rank's time,
`scores` compares ranks. `rank_graph`, `job_graph`, `replay`, `paths` and `what_if` say what the job
would be without something; of many ranks `legs` and `leg_job`.
"""
