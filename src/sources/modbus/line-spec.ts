/**
 * Device address: a host and port, or a serial port. `framing: rtu`: the host forwards serial frames unchanged;
 * `unnumbered`: its responses do not contain the transaction number of the request.
 */
export type ModbusAddress =
  | { transport: 'tcp'; host: string; port: number; framing?: 'rtu' | 'unnumbered' }
  | { transport: 'rtu'; path: string; baud: number; parity: 'none' | 'even' | 'odd'; stopBits: 1 | 2 };

/**
 * Specification of a source in tags.yaml. If sources on one line differ, the maximum of `connections`, `pauseMs` and
 * `settleMs` applies, and `closeAfterPoll` if any of them sets it.
 */
export interface ModbusSpec {
  address: ModbusAddress;
  /** Unit number of the device on its serial line or behind its Modbus gateway. */
  unit: number;
  /** Response timeout, in milliseconds. */
  timeoutMs: number;
  /** Maximum number of registers per request. */
  maxRegisters: number;
  /** Maximum number of simultaneous connections to the host and port. */
  connections: number;
  /** Minimum time between a response and the next request, in milliseconds. */
  pauseMs: number;
  /** Minimum time between connecting and the first request, in milliseconds. */
  settleMs: number;
  /** Whether responses may contain another unit number. */
  isAnyUnit: boolean;
  /** Whether values without `no_value` use the SunSpec codes. */
  isSunSpec: boolean;
  /** Whether to disconnect after each poll, because the device accepts only one client. */
  closeAfterPoll: boolean;
}

/** Returns the host and port, or the serial port, which sources with the same line have in common. */
export function lineNameOf(address: ModbusAddress): string {
  return address.transport === 'tcp' ? `${address.host.toLowerCase()}:${address.port}` : address.path;
}
