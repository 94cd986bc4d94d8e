"""Modbus devices by pymodbus, for the tests: peer.py tcp PORT | peer.py rtu DEVICE BAUD PARITY

Every unit has the same holding registers: a SunSpec-like map from 40000 on, a counter at 10 (two registers, one more with each read),
an image from 100 to 199 that holds its own addresses, and nothing else. A line of JSON on standard input sets how a unit behaves:
{"unit": 3, "delay": 0.7} answers late, {"unit": 9, "hang": true} never, {"unit": 2, "busy": 4} with exception 6 four times,
{"connections": 1} takes one connection at a time. Each answer, and each connection, is a line of JSON on standard output.
"""
import asyncio
import json
import struct
import sys

from pymodbus.constants import Defaults
from pymodbus.datastore import ModbusServerContext, ModbusSlaveContext, ModbusSparseDataBlock
from pymodbus.pdu import ModbusExceptions
from pymodbus.server import async_io
from pymodbus.transaction import ModbusRtuFramer, ModbusSocketFramer

COUNTER = 10
behaviour = {}
limits = {"connections": 0}


def say(**what):
    print(json.dumps(what), flush=True)


class Registers(ModbusSparseDataBlock):
    """Sparse: what is not here is an illegal address."""

    def __init__(self):
        map_ = {COUNTER: 0, COUNTER + 1: 0}
        map_.update({address: address for address in range(100, 200)})
        text = struct.unpack(">2H", b"SunS")
        watts = struct.unpack(">2H", struct.pack(">f", 1234.5))
        energy = struct.unpack(">4H", struct.pack(">Q", 9_876_543_210))
        for at, word in enumerate((*text, 1, 66, *watts, *reversed(watts), *energy)):
            map_[40_000 + at] = word
        super().__init__(map_)
        self.count = 0

    def validate(self, address, count=1):
        return all(at in self.values for at in range(address, address + count))

    def getValues(self, address, count=1):
        if address <= COUNTER < address + count:
            self.count += 1
            self.values[COUNTER], self.values[COUNTER + 1] = self.count >> 16, self.count & 0xFFFF
        return [self.values[at] for at in range(address, address + count)]


def asked(handler, request, *addr):
    """Answers as the unit is told to behave."""
    how = behaviour.get(request.unit_id, {})
    if how.get("hang"):
        say(hangs=request.unit_id)
        return
    if how.get("busy", 0) > 0:
        how["busy"] -= 1
        response = request.doException(ModbusExceptions.SlaveBusy)
        response.transaction_id, response.unit_id = request.transaction_id, request.unit_id
        say(unit=request.unit_id, address=request.address, count=request.count, exception=6)
        handler.send(response, *addr)
        return

    def answer():
        try:
            response = request.execute(handler.server.context[request.unit_id])
            response.transaction_id, response.unit_id = request.transaction_id, request.unit_id
            values = getattr(response, "registers", None)
            what = {"values": values} if values is not None else {"exception": getattr(response, "exception_code", 0)}
            say(unit=request.unit_id, address=request.address, count=request.count, **what)
            handler.send(response, *addr)
        except Exception as error:  # the connection is gone
            say(error=str(error))

    asyncio.get_running_loop().call_later(how.get("delay", 0), answer)


class Connected(async_io.ModbusConnectedRequestHandler):
    refused = False

    def connection_made(self, transport):
        if limits["connections"] and len(self.server.active_connections) >= limits["connections"]:
            self.refused = True
            say(refused_connections=1)
            transport.abort()
            return
        super().connection_made(transport)
        say(connections=len(self.server.active_connections))

    def connection_lost(self, call_exc):
        if not self.refused:
            super().connection_lost(call_exc)

    def execute(self, request, *addr):
        asked(self, request, *addr)


class Single(async_io.ModbusSingleRequestHandler):
    def execute(self, request, *addr):
        asked(self, request, *addr)


async def listen():
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        told = json.loads(line)
        if "unit" in told:
            behaviour[told["unit"]] = told
        else:
            limits.update(told)
        say(told=told)
    asyncio.get_running_loop().stop()


async def main():
    Defaults.IgnoreMissingSlaves = True
    slaves = {unit: ModbusSlaveContext(hr=Registers(), ir=Registers(), zero_mode=True) for unit in range(1, 11)}
    context = ModbusServerContext(slaves=slaves, single=False)
    if sys.argv[1] == "tcp":
        address = ("127.0.0.1", int(sys.argv[2]))
        server = async_io.ModbusTcpServer(
            context, framer=ModbusSocketFramer, address=address, handler=Connected, allow_reuse_address=True
        )
        asyncio.get_running_loop().create_task(server.serve_forever())
        await server.serving
    else:
        _, _, device, baud, parity = sys.argv
        server = async_io.ModbusSerialServer(
            context, framer=ModbusRtuFramer, port=device, baudrate=int(baud), parity=parity, handler=Single
        )
        server.handler = Single
        await server.start()
        asyncio.get_running_loop().create_task(server.serve_forever())
    say(ready=True)
    await listen()


try:
    asyncio.run(main())
except (RuntimeError, KeyboardInterrupt):
    pass
