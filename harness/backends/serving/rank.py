"""One host of the serving engine (``python -m harness.backends.serving.rank``), reporting by `r2ccl_core.perf`'s
events.

An iteration is a request. Rank 0 computes prompts and reports the measurements; the others decode.
"""

import os
import sys
from typing import NoReturn

from harness.backends.said import first_line
from harness.backends.serving.decode import Decoder, GoneError
from harness.backends.serving.front import Front
from harness.backends.serving.seat import read_seat
from r2ccl_core.errors import TransportError
from r2ccl_core.perf.live_log import LiveLog
from r2ccl_core.perf.stdin import end_with_stdin

OK, LOST = 0, 3


def main() -> NoReturn:
    """Serves and exits with 0 ok, 2 usage, 3 the transport was lost."""
    seat = read_seat()
    end_with_stdin()
    process: Front | Decoder = Decoder(seat) if seat.rank else Front(seat)
    try:
        with LiveLog(lambda: list(process.stats()["events"]), seat.events):
            result = process.run()
    except (TransportError, GoneError, OSError) as error:
        message = first_line(error) if not isinstance(error, GoneError) else "host 0 is gone"
        print(message, file=sys.stderr, flush=True)
        seat.events.emit("error", message=message, iteration=None, core=process.stats())
        os._exit(LOST)
    seat.events.emit("done", core=process.stats(), result=result or {})
    process.close()
    os._exit(OK)


if __name__ == "__main__":
    main()
