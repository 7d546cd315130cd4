"""From files to ranks, from ranks to tables, from tables to results, in a store."""
