import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';

export interface DeviceRequest {
  unit: number;
  code: number;
  address: number;
  /** Number of registers or bits; the value of a write to one of them. */
  count: number;
  transaction: number;
  /** Number of the connection, from 1. */
  connection: number;
  /** Monotonic time of arrival, on the clock of the test. */
  atMs: number;
}

/** Response PDU, a complete frame, or no response. */
type Response = Buffer | { frame: Buffer } | undefined;

const HEADER_BYTES = 6;

/** A Modbus host whose registers contain their addresses. */
export class ScriptedDevice {
  readonly requests: DeviceRequest[] = [];
  /** Ways in which connections ended: FIN, or an error code. */
  readonly ends: string[] = [];
  opened = 0;
  mostOpen = 0;
  /** Registers that the device rejects. */
  readonly missing = new Set<number>();
  maxCount = 125;
  /** Words by address, if they differ from the address. */
  readonly words = new Map<number, number>();
  /** Called with the number of each new connection. */
  opening: (connection: number) => void = () => {};
  respond: (request: DeviceRequest) => Response = (request) => this.read(request);
  readonly sockets = new Set<Socket>();
  readonly #server: Server;
  readonly #nowMs: () => number;
  /** Whether frames are those of a serial line. */
  readonly #isSerial: boolean;

  private constructor(nowMs: () => number, isSerial: boolean) {
    this.#nowMs = nowMs;
    this.#isSerial = isSerial;
    this.#server = createServer((socket) => this.#accept(socket));
  }

  static async listen(nowMs: () => number, isSerial = false, port = 0): Promise<ScriptedDevice> {
    const device = new ScriptedDevice(nowMs, isSerial);
    device.#server.listen(port, '127.0.0.1');
    await once(device.#server, 'listening');
    return device;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Requests as `unit table-function address+count`, and forgets them. */
  taken(): string[] {
    return this.requests.splice(0).map(({ code, address, count }) => `${code}: ${address}+${count}`);
  }

  async close(): Promise<void> {
    this.disconnectAll();
    if (!this.#server.listening) return;
    this.#server.close();
    await once(this.#server, 'close');
  }

  disconnectAll(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  /** Response of a working device. */
  read({ code, address, count }: DeviceRequest): Buffer {
    if (code > 4) return Buffer.of(code, address >> 8, address & 0xff, count >> 8, count & 0xff);
    if (count > this.maxCount) return exception(code, 3);
    const addresses = Array.from({ length: count }, (_, at) => address + at);
    if (addresses.some((one) => this.missing.has(one))) return exception(code, 2);
    const words = addresses.map((one) => this.words.get(one) ?? one);
    const data = code <= 2 ? packed(words) : words.flatMap((word) => [word >> 8, word & 0xff]);
    return Buffer.of(code, data.length, ...data);
  }

  #accept(socket: Socket): void {
    const connection = ++this.opened;
    this.opening(connection);
    this.sockets.add(socket);
    this.mostOpen = Math.max(this.mostOpen, this.sockets.size);
    socket.on('close', () => this.sockets.delete(socket));
    socket.on('end', () => this.ends.push('FIN'));
    socket.on('error', (error: NodeJS.ErrnoException) => this.ends.push(error.code!));
    socket.on('data', (bytes) => {
      const pdu = bytes.subarray(this.#isSerial ? 0 : HEADER_BYTES);
      if (pdu.length < 6) return;
      const request: DeviceRequest = {
        unit: pdu[0]!,
        code: pdu[1]!,
        address: pdu.readUInt16BE(2),
        count: pdu.readUInt16BE(4),
        transaction: bytes.readUInt16BE(0),
        connection,
        atMs: this.#nowMs(),
      };
      this.requests.push(request);
      const response = this.respond(request);
      if (response === undefined) return;
      if ('frame' in response) socket.write(response.frame);
      else socket.write(this.frameOf(request, response));
    });
  }

  frameOf({ unit, transaction }: Pick<DeviceRequest, 'unit' | 'transaction'>, pdu: Buffer): Buffer {
    if (this.#isSerial) return serialFrame(Buffer.of(unit, ...pdu));
    const header = Buffer.alloc(HEADER_BYTES);
    header.writeUInt16BE(transaction, 0);
    header.writeUInt16BE(pdu.length + 1, 4);
    return Buffer.of(...header, unit, ...pdu);
  }
}

export function exception(code: number, number: number): Buffer {
  return Buffer.of(code | 0x80, number);
}

function packed(bits: readonly number[]): number[] {
  const bytes = new Array<number>(Math.ceil(bits.length / 8)).fill(0);
  for (const [at, bit] of bits.entries()) if (bit & 1) bytes[at >> 3]! |= 1 << (at & 7);
  return bytes;
}

/** Adds the checksum. */
function serialFrame(bytes: Buffer): Buffer {
  let sum = 0xffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >>> 1) ^ 0xa001 : sum >>> 1;
  }
  return Buffer.of(...bytes, sum & 0xff, sum >> 8);
}
