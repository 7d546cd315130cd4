"""Memory: who holds it at any moment.

`curves` pairs allocations with releases, `categories` and `tags` say what blocks are for, `live`
sums what lives at a moment. A store's table `memory` and a snapshot of the allocator (`snapshots`)
come out as the same curves.
"""
