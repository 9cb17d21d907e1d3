"""Point to point: one process writes another's registered memory, or reads it, over all NICs and despite their
failures.

    engine = TransferEngine("prefill")
    region = engine.register(numpy_array)
    peer = engine.connect(address_of_the_other)        # its `engine.address`, by any means
    peer.write([(region[0:4096], remote[8192:12288])], notify=b"block 7").wait()
"""

from r2ccl_core.transfer.engine import Peer, Region, RemoteMemory, Span, Transfer, TransferEngine

__all__ = ["Peer", "Region", "RemoteMemory", "Span", "Transfer", "TransferEngine"]
