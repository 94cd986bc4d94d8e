import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';

/** What became of a request that was not answered with registers. */
export type ModbusFailure =
  /** The device answered that it will not; `exception` says why. */
  | 'exception'
  /** Nothing came in time, or the gateway says that the device did not answer it. */
  | 'silent'
  /** Something came that is no answer: noise on the line, two devices with one number. */
  | 'garbled'
  /** There is no connection, or it ended under the request. */
  | 'closed'
  /** It is not tried now: the device, or the way to it, rests after failures. */
  | 'resting';

/** Numbers of the protocol (section 7 of its application specification). */
const EXCEPTION_WORDS: Readonly<Record<number, string>> = {
  1: 'illegal function: the device does not know this table',
  2: 'illegal data address: the device has no such register',
  3: 'illegal data value: the device does not give so many registers at once',
  4: 'device failure',
  5: 'acknowledge: the device takes its time',
  6: 'the device is busy',
  8: 'memory parity error in the device',
  10: 'the gateway has no path to the device',
  11: 'the device does not answer its gateway',
};
/** Answers that mean "not now". */
const BUSY = [5, 6];
/** The gateway answers for a device that does not. */
const GATEWAY_SILENT = [10, 11];

const HINTS: Readonly<Record<ModbusFailure, string>> = {
  exception: 'Check the register, its table and its type against the manual of the device.',
  silent: 'Check the unit number, the wiring, and whether the device is on; a slow one may need a longer `timeout`.',
  garbled: 'Check baud, parity and stop bits, the termination of the line, and that no two devices share a number.',
  closed: 'Check address, cable and power; many devices take only a few connections at once.',
  resting: 'It is tried again by itself.',
};

export class ModbusError extends TagferryError {
  readonly failure: ModbusFailure;
  readonly exception: number | undefined;

  constructor(
    message: string,
    failure: ModbusFailure,
    more: { exception?: number; hint?: string; cause?: unknown } = {},
  ) {
    const { exception, hint = HINTS[failure], cause } = more;
    super(message, { code: `modbus.${failure}`, retryable: true, hint, cause });
    this.failure = failure;
    this.exception = exception;
  }

  get isBusy(): boolean {
    return this.exception !== undefined && BUSY.includes(this.exception);
  }

  /** A part of what was asked for may still be given. */
  get isRefusal(): boolean {
    return this.failure === 'exception' && !this.isBusy;
  }
}

/** The device answered with an exception. */
export function exceptionOf(code: number): ModbusError {
  const words = `exception ${code}: ${EXCEPTION_WORDS[code] ?? 'unknown'}`;
  const failure = GATEWAY_SILENT.includes(code) ? 'silent' : 'exception';
  return new ModbusError(words, failure, { exception: code });
}

/** What the driver throws, some of which looks like an error and is none. */
export function modbusErrorOf(error: unknown, timeoutMs: number): ModbusError {
  if (error instanceof ModbusError) return error;
  const { modbusCode, errno, message } = (error ?? {}) as { modbusCode?: unknown; errno?: unknown; message?: unknown };
  if (typeof modbusCode === 'number') return exceptionOf(modbusCode);
  if (errno === 'ETIMEDOUT') return new ModbusError(`no answer within ${timeoutMs} ms`, 'silent');
  const words = messageOf(typeof message === 'string' ? message : error);
  if (/^(CRC|Data length|Unexpected data) error/.test(words)) {
    return new ModbusError(`an answer that is none (${words})`, 'garbled');
  }
  return new ModbusError(`the connection failed: ${words}`, 'closed', { cause: error });
}

/** A serial device that cannot be opened, in words that help. */
export function serialErrorOf(error: unknown, path: string): ModbusError {
  const words = messageOf(error);
  const code = codeOf(error);
  const because = (message: string, hint: string) => new ModbusError(message, 'closed', { hint, cause: error });
  if (code === 'ENOENT' || /No such file/i.test(words)) {
    return because(
      `there is no ${path}`,
      'Plug the adapter in; `ls -l /dev/serial/by-id/` shows those that are there, by names that stay.',
    );
  }
  if (/Permission denied|Operation not permitted|EACCES|EPERM/i.test(words)) {
    return because(
      `${path} may not be opened`,
      'Copy /usr/share/doc/tagferry/examples/serial-line.conf to /etc/systemd/system/tagferry.service.d/, then ' +
        '`systemctl daemon-reload` and `systemctl restart tagferry`; by hand, be a member of the group dialout.',
    );
  }
  if (/lock|busy/i.test(words)) {
    return because(`${path} is in use by another program`, `\`fuser ${path}\` says by which; stop it (ModemManager?).`);
  }
  return because(
    `${path} cannot be opened: ${words}`,
    'Check baud, parity and stop_bits, and that it is a serial line.',
  );
}
