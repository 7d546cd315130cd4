"""Pure functions from tables to tables: link, pair, cost, judge, summarise."""
