"""Replaces the parts around the storage of ThingsBoard's gateway, which is used unchanged. `take` stores each line that
arrives over RELP, like the gateway's send_to_storage, and acknowledges it once the storage has confirmed it. `give` sends
all stored lines to the destination, one pack after another, like the gateway's uplink.

    thingsboard-feeder.py file|sqlite take PORT
    thingsboard-feeder.py file|sqlite give

The storage options are those in the gateway's own tb_gateway.json. Its data is in /var/lib/thingsboard-gateway."""

import base64
import logging
import os
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "source"))
# pybase64 has the same functions but is faster; Debian has no package for it.
sys.modules.setdefault("pybase64", base64)

DATA = "/var/lib/thingsboard-gateway/data/"
# Same values as in tb_gateway.json.
OPTIONS = {
    "read_records_count": 100,
    "max_records_count": 100000,
    "data_folder_path": DATA,
    "max_file_count": 10,
    "max_read_records_count": 10,
    "max_records_per_file": 10000,
    "data_file_path": DATA,
    "messages_ttl_check_in_hours": 1,
    "messages_ttl_in_days": 7,
}


class Log(logging.Logger):
    def trace(self, *_given, **_named):
        pass


def storage_of(kind):
    log = Log("storage", logging.WARNING)
    log.addHandler(logging.StreamHandler())
    os.makedirs(DATA, exist_ok=True)
    if kind == "file":
        from thingsboard_gateway.storage.file.file_event_storage import FileEventStorage as Storage
    else:
        from thingsboard_gateway.storage.sqlite.sqlite_event_storage import SQLiteEventStorage as Storage
    return Storage(OPTIONS, log, threading.Event())


def take(storage, port):
    signal.signal(signal.SIGTERM, lambda *_: (storage.stop(), time.sleep(1), os._exit(0)))
    server = socket.create_server(("127.0.0.1", int(port)))
    while True:
        client, _ = server.accept()
        threading.Thread(target=serve, args=(client, storage), daemon=True).start()


def serve(client, storage):
    stream = client.makefile("rwb")
    try:
        while True:
            number = word(stream)
            word(stream)
            length = int(word(stream))
            data = stream.read(length).decode()
            stream.read(1)
            # The first message opens the session.
            if number == "1" or storage.put(data):
                stream.write(f"{number} rsp 6 200 OK\n".encode())
                stream.flush()
    except (OSError, ValueError):
        client.close()


def word(stream):
    found = b""
    while True:
        one = stream.read(1)
        if one == b"":
            raise OSError("over")
        if one in b" \n":
            return found.decode()
        found += one


def give(storage):
    with open("/etc/thingsboard-feeder", encoding="ascii") as file:
        host, port = file.read().split()
    far_end = socket.create_connection((host, int(port)))
    while True:
        events = storage.get_event_pack()
        if not events:
            time.sleep(0.1)
            continue
        far_end.sendall("".join(f"{event}\n" for event in events).encode())
        storage.event_pack_processing_done()


def main():
    kind, does, *more = sys.argv[1:]
    {"take": take, "give": give}[does](storage_of(kind), *more)


main()
