import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';

/** Reason for a failed request. */
export type ModbusFailure =
  /** The device responded with an exception; `exception` contains its code. */
  | 'exception'
  /** No response within the timeout, or the Modbus gateway reports that the device does not respond. */
  | 'silent'
  /** Invalid response, for example line noise or two devices with the same unit number. */
  | 'garbled'
  /** No connection, or the connection was closed during the request. */
  | 'closed';

const BUSY_HINT = 'Increase `every`, and check whether other programs poll the device.';
const DEVICE_HINT = 'Check the display, the log and the power of the device.';
/**
 * Exception codes defined by the protocol (application specification, section 7). `hint`: set if the exception does not
 * concern the requested registers.
 */
const EXCEPTIONS: Readonly<Record<number, { text: string; hint?: string }>> = {
  1: { text: 'illegal function: the device does not support this table' },
  2: { text: 'illegal data address: the device has no such register' },
  3: { text: 'illegal data value: too many registers in one request' },
  4: { text: 'device failure', hint: DEVICE_HINT },
  5: { text: 'acknowledge: the device is still processing the request', hint: BUSY_HINT },
  6: { text: 'the device is busy', hint: BUSY_HINT },
  8: { text: 'memory parity error in the device', hint: DEVICE_HINT },
  10: { text: 'the gateway has no path to the device' },
  11: { text: 'the device does not respond to its gateway' },
};
export const ILLEGAL_FUNCTION = 1;
const LAST_REJECTION = 3;
/** Codes of temporary conditions. */
const BUSY = [5, 6];
/** Codes with which a Modbus gateway reports that a device does not respond. */
const GATEWAY_SILENT = [10, 11];

const HINTS: Readonly<Record<ModbusFailure, string>> = {
  exception: 'Check the register, its table and its type against the device manual.',
  silent:
    'Check the unit number, the wiring and the power. A slow device requires a longer `timeout`, and some gateways ' +
    'require a `pause` between requests, `settle` after connecting, or `framing: rtu`.',
  garbled:
    'Check the unit number, and that no two devices have the same one. On a serial line, also check baud, parity, ' +
    'stop bits and line termination.',
  closed: 'Check address, cable and power. Many devices accept only a few connections.',
};

const REGISTERS_HINT =
  'Check the register and its table against the device manual. Some gateways require a `pause` between requests.';

interface ModbusErrorOptions {
  exception?: number | undefined;
  hint?: string | undefined;
  cause?: unknown;
  isPaused?: boolean;
}

export class ModbusError extends TagferryError {
  readonly failure: ModbusFailure;
  readonly exception: number | undefined;
  /** Bytes sent and received, in hexadecimal digits, of an invalid response. */
  frames: { sent: string; received: string } | undefined;
  /** Whether the request was not sent, because the device or its line is paused after earlier failures. */
  readonly isPaused: boolean;

  constructor(
    message: string,
    failure: ModbusFailure,
    { exception, hint = HINTS[failure], cause, isPaused = false }: ModbusErrorOptions = {},
  ) {
    super(message, { code: `modbus.${failure}`, retryable: true, hint, cause });
    this.failure = failure;
    this.exception = exception;
    this.isPaused = isPaused;
  }

  /** Returns the error of registers that have no response, although the device responds to other requests. */
  ofRegisters(): ModbusError {
    const { message, failure, exception } = this;
    const text = `${message}, although the device responds to other requests`;
    return new ModbusError(text, failure, { exception, hint: REGISTERS_HINT });
  }

  /** Returns the error of a request that is not sent during a pause. */
  duringPause(): ModbusError {
    const { message, failure, exception, hint } = this;
    return new ModbusError(message, failure, { exception, hint, isPaused: true });
  }

  /** Whether the device is temporarily busy. */
  get isBusy(): boolean {
    return this.exception !== undefined && BUSY.includes(this.exception);
  }

  /** Whether the device does not provide these registers, or does not return them in one request. */
  get isRejection(): boolean {
    return this.exception !== undefined && this.exception <= LAST_REJECTION;
  }

  /** Whether the device or its connection does not respond, so that further requests would fail too. */
  get isUnreachable(): boolean {
    return this.failure === 'silent' || this.failure === 'closed';
  }
}

/** Returns the error for a device exception. */
export function exceptionOf(code: number): ModbusError {
  const failure = GATEWAY_SILENT.includes(code) ? 'silent' : 'exception';
  const { text, hint = HINTS[failure] } = EXCEPTIONS[code] ?? { text: 'unknown' };
  return new ModbusError(`exception ${code}: ${text}`, failure, { exception: code, hint });
}

export function invalidResponse(reason: string, hint?: string): ModbusError {
  return new ModbusError(`invalid response (${reason})`, 'garbled', hint === undefined ? {} : { hint });
}

/** Returns the error and a hint for a serial port that cannot be opened. */
export function serialErrorOf(error: unknown, path: string): ModbusError {
  const text = `${codeOf(error) ?? ''} ${messageOf(error)}`;
  const failed = (problem: string, hint: string) => new ModbusError(problem, 'closed', { hint, cause: error });
  if (/ENOENT|No such file/i.test(text)) {
    const hint = 'Connect the adapter. `ls -l /dev/serial/by-id/` lists adapters by stable names.';
    return failed(`${path} does not exist`, hint);
  }
  if (/Permission denied|Operation not permitted|EACCES|EPERM/i.test(text)) {
    const hint =
      'Copy /usr/share/doc/tagferry/examples/serial-line.conf to /etc/systemd/system/tagferry.service.d/, then ' +
      '`systemctl daemon-reload` and `systemctl restart tagferry`. If you run the agent manually, add your user to the dialout group.';
    return failed(`cannot open ${path}: permission denied`, hint);
  }
  if (/lock|busy/i.test(text)) {
    const hint = 'Find the program with `fuser` and the device path, and stop it. It may be ModemManager.';
    return failed(`${path} is in use by another program`, hint);
  }
  const hint = 'Check baud, parity and stop_bits, and that the path is a serial port.';
  return failed(`cannot open ${path}: ${messageOf(error)}`, hint);
}
