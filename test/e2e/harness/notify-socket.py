"""Receives the datagrams of a service at a socket and prints each as a JSON list of its lines."""

import json
import socket
import sys

server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
server.bind(sys.argv[1])
print(json.dumps(["listening"]), flush=True)
while True:
    # Without a buffer for file descriptors, the kernel closes those of a barrier, which the sender waits for.
    print(json.dumps(server.recv(65536).decode().splitlines()), flush=True)
