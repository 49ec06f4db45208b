"""Ranks meet as a framework's would: rank zero listens where all are told to, the others call."""

import os
import socket
import time

# What one rank waits for another: they may start far apart on a machine with other work.
LONG_S = 240
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

if rank == 0:
    with socket.create_server(("", place[1])) as server:
        server.settimeout(LONG_S)
        callers = sorted(int(server.accept()[0].recv(8)) for _ in range(size - 1))
    print(f"met {callers} on {socket.gethostname()} port {place[1]}")
else:
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        try:
            with socket.create_connection(place, timeout=LONG_S) as caller:
                caller.sendall(str(rank).encode())
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise SystemExit(f"rank {rank} found nobody at {place}")
