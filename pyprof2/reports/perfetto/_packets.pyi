# The types of _packets.c; events are those of `PacketColumns` in packets.py.
from numpy import bool_
from numpy.typing import NDArray

def packets(
    heads: tuple[bytes, bytes, bytes, bytes],
    first: tuple[object, ...],
    second: tuple[object, ...],
    is_second: NDArray[bool_],
    /,
) -> bytes: ...
