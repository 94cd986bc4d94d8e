"""Modbus devices by pymodbus, for the tests: peer.py tcp PORT | peer.py rtu-over-tcp PORT | peer.py rtu DEVICE BAUD PARITY

Every unit has the same holding registers: a SunSpec-like map from 40000, a counter at 10 (two registers, incremented by each read),
100 to 199 with their own addresses as values, BCD and text from 300, and from 320 a number with its scale factor and a code for "no
value". Each line of standard input is a JSON command:
{"unit": 3, "delay": 0.7} delays responses, {"unit": 9, "hang": true} sends none, {"unit": 5, "max_count": 10} sends none to longer
requests, {"unit": 2, "busy": 4} responds with exception 6 four times, {"connections": 1} limits simultaneous connections, and
{"gap": 0.05} ignores requests that arrive earlier than this after a response. {"unit": 1, "unsupported": [6]} rejects functions,
{"unit": 1, "mute_writes": true} performs writes without a response, and {"clamp": 50} limits the registers to 50. Each response, write
and connection is reported as a line of JSON on standard output.
"""
import asyncio
import json
import struct
import sys
import time

from pymodbus.constants import Defaults
from pymodbus.datastore import ModbusServerContext, ModbusSlaveContext, ModbusSparseDataBlock
from pymodbus.pdu import ModbusExceptions
from pymodbus.server import async_io
from pymodbus.transaction import ModbusRtuFramer, ModbusSocketFramer

COUNTER = 10
behaviour = {}
limits = {"connections": 0, "gap": 0, "clamp": 0xFFFF}
responded = {"at": float("-inf")}


def report(**what):
    print(json.dumps(what), flush=True)


class Registers(ModbusSparseDataBlock):
    """Returns an illegal address error for missing registers."""

    def __init__(self):
        map_ = {COUNTER: 0, COUNTER + 1: 0}
        map_.update({address: address for address in range(100, 200)})
        text = struct.unpack(">2H", b"SunS")
        watts = struct.unpack(">2H", struct.pack(">f", 1234.5))
        energy = struct.unpack(">4H", struct.pack(">Q", 9_876_543_210))
        for at, word in enumerate((*text, 1, 66, *watts, *reversed(watts), *energy)):
            map_[40_000 + at] = word
        for at, word in enumerate((0x1234, 0x0012, 0x3456, 0x12FA, 0x0A50)):
            map_[300 + at] = word
        for at, word in enumerate(struct.unpack(">8H", b"00123.50" + b"RUN\0" + b"    ")):
            map_[310 + at] = word
        for at, word in enumerate((2346, 0xFFFF, 0x8000)):
            map_[320 + at] = word
        super().__init__(map_)
        self.count = 0

    def validate(self, address, count=1):
        return all(at in self.values for at in range(address, address + count))

    def getValues(self, address, count=1):
        if address <= COUNTER < address + count:
            self.count += 1
            self.values[COUNTER], self.values[COUNTER + 1] = self.count >> 16, self.count & 0xFFFF
        return [self.values[at] for at in range(address, address + count)]

    def setValues(self, address, values):
        for at, value in enumerate(values):
            self.values[address + at] = min(value, limits["clamp"])


def respond(handler, request, *addr):
    """Responds according to the settings of the unit."""
    how = behaviour.get(request.unit_id, {})
    if time.monotonic() < responded["at"] + limits["gap"]:
        report(ignores=request.unit_id)
        return
    count = getattr(request, "count", 1)
    if how.get("hang") or count > how.get("max_count", 125):
        report(hangs=request.unit_id)
        return
    is_write = request.function_code in (5, 6, 15, 16)
    if request.function_code in how.get("unsupported", []):
        response = request.doException(ModbusExceptions.IllegalFunction)
        response.transaction_id, response.unit_id = request.transaction_id, request.unit_id
        handler.send(response, *addr)
        return
    if how.get("busy", 0) > 0:
        how["busy"] -= 1
        response = request.doException(ModbusExceptions.SlaveBusy)
        response.transaction_id, response.unit_id = request.transaction_id, request.unit_id
        report(unit=request.unit_id, address=request.address, count=request.count, exception=6)
        handler.send(response, *addr)
        return

    def execute():
        try:
            response = request.execute(handler.server.context[request.unit_id])
            response.transaction_id, response.unit_id = request.transaction_id, request.unit_id
            values = getattr(response, "registers", None)
            what = {"values": values} if values is not None else {"exception": getattr(response, "exception_code", 0)}
            if is_write:
                what = {"function": request.function_code, "writes": getattr(request, "values", None) or [request.value]}
            report(unit=request.unit_id, address=request.address, count=count, **what)
            if is_write and how.get("mute_writes"):
                return
            responded["at"] = time.monotonic()
            handler.send(response, *addr)
        except Exception as error:  # the connection has ended
            report(error=str(error))

    asyncio.get_running_loop().call_later(how.get("delay", 0), execute)


class Connected(async_io.ModbusConnectedRequestHandler):
    refused = False

    def connection_made(self, transport):
        if limits["connections"] and len(self.server.active_connections) >= limits["connections"]:
            self.refused = True
            report(refused_connections=1)
            transport.abort()
            return
        super().connection_made(transport)
        report(connections=len(self.server.active_connections))

    def connection_lost(self, call_exc):
        if not self.refused:
            super().connection_lost(call_exc)
            report(disconnections=1)

    def execute(self, request, *addr):
        respond(self, request, *addr)


class Single(async_io.ModbusSingleRequestHandler):
    def execute(self, request, *addr):
        respond(self, request, *addr)


async def listen():
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        settings = json.loads(line)
        if "unit" in settings:
            behaviour[settings["unit"]] = settings
        else:
            limits.update(settings)
        report(configured=settings)
    asyncio.get_running_loop().stop()


async def main():
    Defaults.IgnoreMissingSlaves = True
    slaves = {unit: ModbusSlaveContext(hr=Registers(), ir=Registers(), zero_mode=True) for unit in range(1, 11)}
    context = ModbusServerContext(slaves=slaves, single=False)
    if sys.argv[1] in ("tcp", "rtu-over-tcp"):
        framer = ModbusSocketFramer if sys.argv[1] == "tcp" else ModbusRtuFramer
        address = ("127.0.0.1", int(sys.argv[2]))
        server = async_io.ModbusTcpServer(
            context, framer=framer, address=address, handler=Connected, allow_reuse_address=True
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
    report(ready=True)
    await listen()


try:
    asyncio.run(main())
except (RuntimeError, KeyboardInterrupt):
    pass
