"""What a job would be with a remedy: links as fast as others, work spread evenly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyprof2.analysis.job.job_graph import TRANSFER, JobGraph
from pyprof2.analysis.job.rank_graph import KERNEL
from pyprof2.analysis.job.what_if import Change

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLASS = ["group_key", "kind", "bytes"]


def links_as_others(job: JobGraph, rates: pd.DataFrame, links: pd.DataFrame) -> Change:
    """Return the change in which slow groups transfer as fast as the others of their class.

    Args:
        job: the graph.
        rates: one row per instance: `instance_id`, `group_key`, `kind`, `bytes`.
        links: the slow ones: `group_key`, `kind`, `bytes`, `ratio` to the median of the others.
    """
    keys = [frame[_CLASS].astype(object).fillna("") for frame in (rates, links)]
    ratio = dict(zip(map(tuple, keys[1].to_numpy()), links["ratio"].astype(float), strict=True))
    factors = [1 / ratio.get(tuple(key), 1.0) for key in keys[0].to_numpy()]
    by_instance = pd.Series(factors, rates["instance_id"].astype("int64"), dtype=float)
    factor = by_instance.reindex(job.instance).fillna(1.0).to_numpy()
    scaled = np.rint(job.graph.duration * factor).astype(np.int64)
    duration = np.where(job.kind == TRANSFER, scaled, job.graph.duration)
    return Change("slow links as the others", duration)


def evenly_spread(job: JobGraph, roles: Mapping[int, Any]) -> Change:
    """Return the change in which ranks of a role share the work of each call evenly.

    Each kernel that does not communicate takes the mean of the same call over them: the work stays
    what it is.
    """
    words = job.labels.texts["category"]
    talks = np.array([*(word == "comm" for word in words), False])[job.labels.codes["category"]]
    events = np.flatnonzero((job.kind == KERNEL) & (job.key >= 0) & ~talks)
    numbers = {role: at for at, role in enumerate(dict.fromkeys(roles.values()))}
    role = pd.Series({rank: numbers[each] for rank, each in roles.items()})
    calls = pd.DataFrame(
        {
            "key": job.key[events],
            "role": role.reindex(job.rank[events]).to_numpy(),
            "ns": job.graph.duration[events],
        }
    )
    mean = calls.groupby(["key", "role"], dropna=False)["ns"].transform("mean")
    duration = job.graph.duration.copy()
    duration[events] = np.rint(mean.to_numpy(float)).astype(np.int64)
    return Change("work spread evenly", duration)
