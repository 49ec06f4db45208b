"""Every rank says where it is. By hand: python hello.py --greeting Hi"""

import argparse
import os
import socket

parser = argparse.ArgumentParser()
parser.add_argument("--greeting", default="Hello")
parser.add_argument("--times", type=int, default=1)
args = parser.parse_args()

rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
for _ in range(args.times):
    print(f"{args.greeting} from rank {rank} of {size} on {socket.gethostname()}")
