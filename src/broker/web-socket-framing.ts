/**
 * Stage between a socket and the WebSocket client, because the client collects whole messages in memory. Passes each
 * chunk of a data frame on as a separate message when it arrives. MQTT does not depend on WebSocket message boundaries
 * (MQTT 5 section 6).
 *
 * States: response head, frame header, frame payload. Stores at most an incomplete response head or frame header.
 */
import { BrokerError } from './broker-error.ts';
import { GrowingBuffer } from './growing-buffer.ts';

/** Maximum payload of a message that is passed on: the limit of a 16-bit frame length. */
export const MAX_FRAME_BYTES = 65_535;
const HEAD_END = '\r\n\r\n';
const MAX_HEAD_BYTES = 32 * 1024;
/** FIN and the opcode of binary data. */
const BINARY = 0x82;
const NOTHING = Buffer.alloc(0);

export class WebSocketFraming {
  /** Accepted parts of the current chunk. */
  #accepted: Buffer[] = [];
  /** An incomplete response head. */
  readonly #head = new GrowingBuffer();
  /** An incomplete frame header: fewer than ten bytes. */
  #incompleteHeader = NOTHING;
  #isUpgraded = false;
  /** The response is not an upgrade, so its body is passed on unchanged. */
  #isRejected = false;
  #isData = false;
  /** Number of payload bytes of the frame that have not arrived yet. */
  #left = 0;

  /** Returns the bytes for the client. Throws a `BrokerError` if the bytes are not WebSocket data. */
  push(chunk: Buffer): Buffer[] {
    this.#accepted = [];
    const bytes = this.#isRejected || this.#isUpgraded ? chunk : this.#readHead(chunk);
    let rest = this.#incompleteHeader.length > 0 ? Buffer.concat([this.#incompleteHeader, bytes]) : bytes;
    this.#incompleteHeader = NOTHING;
    while (rest.length > 0) {
      const used = this.#isRejected ? this.#pass(rest) : this.#frame(rest);
      if (used === 0) {
        this.#incompleteHeader = Buffer.from(rest);
        break;
      }
      rest = rest.subarray(used);
    }
    return this.#accepted;
  }

  #pass(bytes: Buffer): number {
    this.#accepted.push(bytes);
    return bytes.length;
  }

  /** Returns the bytes after the response head; none while it is incomplete. */
  #readHead(chunk: Buffer): Buffer {
    const searchFrom = Math.max(0, this.#head.length - HEAD_END.length + 1);
    this.#head.add(chunk);
    const end = this.#head.bytes.indexOf(HEAD_END, searchFrom);
    if (end < 0 && this.#head.length > MAX_HEAD_BYTES) throw malformed('the response head is too long');
    if (end < 0) return NOTHING;
    const bytes = this.#head.drain();
    if (/^HTTP\/1\.1 101 /.test(bytes.toString('latin1', 0, 16))) this.#isUpgraded = true;
    else this.#isRejected = true;
    return bytes.subarray(this.#pass(bytes.subarray(0, end + HEAD_END.length)));
  }

  /** Returns the number of bytes used; 0 if more are needed. */
  #frame(bytes: Buffer): number {
    if (this.#left === 0) return this.#header(bytes);
    const piece = bytes.subarray(0, Math.min(this.#left, MAX_FRAME_BYTES));
    if (this.#isData) this.#accepted.push(headerOf(piece.length));
    this.#left -= piece.length;
    return this.#pass(piece);
  }

  #header(bytes: Buffer): number {
    const [first, second] = bytes;
    if (first === undefined || second === undefined) return 0;
    // No extension was requested, and servers do not mask frames.
    if ((first & 0x70) !== 0 || second >= 0x80) throw malformed('a frame has reserved bits or a mask');
    const extraBytes = second === 127 ? 8 : second === 126 ? 2 : 0;
    if (bytes.length < 2 + extraBytes) return 0;
    this.#left =
      extraBytes === 8 ? Number(bytes.readBigUInt64BE(2)) : extraBytes === 2 ? bytes.readUInt16BE(2) : second;
    this.#isData = (first & 0x0f) < 8;
    // A control frame has at most 125 bytes, which the client checks. For a data frame, only the payload is passed on.
    if (!this.#isData) this.#accepted.push(bytes.subarray(0, 2 + extraBytes));
    if (!this.#isData && extraBytes > 0) throw malformed('a control frame is too long');
    return 2 + extraBytes;
  }
}

function headerOf(bytes: number): Buffer {
  return Buffer.from(bytes < 126 ? [BINARY, bytes] : [BINARY, 126, bytes >> 8, bytes & 0xff]);
}

function malformed(what: string): BrokerError {
  return new BrokerError(`the broker sent invalid WebSocket data: ${what}`, {
    code: 'broker.malformed',
    retryable: true,
  });
}
