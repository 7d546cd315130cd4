"""Assembly: the canonical tables, from all that linking, costs and hardware found."""
