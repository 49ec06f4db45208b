"""Ranks meet as a framework's would: rank zero listens where all are told to, the others call."""

import os
import socket
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

if rank == 0:
    with socket.create_server(("", place[1])) as server:
        server.settimeout(30)
        callers = sorted(int(server.accept()[0].recv(8)) for _ in range(size - 1))
    print(f"met {callers} on {socket.gethostname()} port {place[1]}")
else:
    for _ in range(300):
        try:
            with socket.create_connection(place, timeout=5) as caller:
                caller.sendall(str(rank).encode())
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise SystemExit(f"rank {rank} found nobody at {place}")
