"""Memory: who holds it at any moment, and what that tells.

`curves` and `blocks` pair allocations with releases, `owners` names their op, layer and line,
`categories` what they are for; `live` sums what lives at a moment. A store's table `memory` and a
snapshot of the allocator (`snapshots`) come out as the same curves.
"""
