/**
 * Resolves host names of devices, brokers and receivers in a separate process.
 *
 * `getaddrinfo` blocks one of the four libuv threads, which all file access shares, for up to a minute if a name server
 * does not respond. Six such names once blocked platform lookups and token writes. `dns.lookup` therefore runs
 * `getent`, which uses the same configuration (`/etc/hosts`, nsswitch, mDNS), with a deadline. It is replaced globally,
 * because clients such as the NATS client call `dns.lookup` directly. Only platform connections use Node's own lookup
 * (`poolLookup`).
 *
 * Invariants: at most `limit` processes, one concurrent lookup per name, and no lookup runs longer than the deadline.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import dns, { type LookupAddress, type LookupOptions } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import { programEnvironment } from './programs/environment.ts';

/** Node's own lookup, which uses the thread pool. */
export const poolLookup = dns.lookup as LookupFunction;

export interface NameLookupOptions {
  /** Path of `getent` or of a test replacement. */
  program?: string;
  limit?: number;
  deadlineMs?: number;
}

/** A gateway resolves a few dozen names; each process requires 2 MB. */
const LIMIT = 16;
/** The resolver waits 5 s for the first name server before it queries the second. */
const DEADLINE_MS = 12_000;
/** A lookup returns a few addresses of about a hundred bytes per line. */
const MAX_OUTPUT_BYTES = 64 * 1024;
/** DNS allows 253 characters. A leading hyphen would be parsed as an option. */
const NAME = /^[^\s\0-][^\s\0]{0,254}$/;

type Callback = (error: NodeJS.ErrnoException | null, address: string | LookupAddress[], family?: number) => void;

export class NameLookup {
  readonly #program: string;
  readonly #deadlineMs: number;
  #limit: number;
  /** Whether the program does not exist. */
  #isMissing = false;
  #running = 0;
  readonly #waiting: (() => void)[] = [];
  readonly #pending = new Map<string, Promise<LookupAddress[]>>();

  constructor({ program = 'getent', limit = LIMIT, deadlineMs = DEADLINE_MS }: NameLookupOptions = {}) {
    this.#program = program;
    this.#limit = limit;
    this.#deadlineMs = deadlineMs;
  }

  /** Replaces `dns.lookup` for all sockets of this process without an explicit lookup. */
  install(): void {
    dns.lookup = this.lookup as typeof dns.lookup;
  }

  /** Same interface as `dns.lookup`. Fails with `ENOTFOUND`, or with `EAI_AGAIN` at the deadline. */
  readonly lookup = (name: string, options: LookupOptions | number | Callback, then?: Callback): void => {
    const callback = (typeof options === 'function' ? options : then)!;
    const wanted = typeof options === 'object' ? options : typeof options === 'number' ? { family: options } : {};
    if (!name || isIP(name)) {
      poolLookup(name, wanted, callback);
      return;
    }
    this.#addressesOf(name).then(
      (addresses) => {
        const fitting = addresses.filter(({ family }) => isWanted(family, wanted.family));
        const [first] = fitting;
        if (!first) callback(lookupError('ENOTFOUND', name), '');
        else if (wanted.all) callback(null, fitting);
        else callback(null, first.address, first.family);
      },
      (error: NodeJS.ErrnoException) => callback(error, ''),
    );
  };

  #addressesOf(name: string): Promise<LookupAddress[]> {
    if (!NAME.test(name)) return Promise.reject(lookupError('ENOTFOUND', name));
    const known = this.#pending.get(name);
    if (known) return known;
    const lookup = this.#resolve(name).finally(() => this.#pending.delete(name));
    this.#pending.set(name, lookup);
    return lookup;
  }

  async #resolve(name: string): Promise<LookupAddress[]> {
    while (this.#running >= this.#limit) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#running++;
    try {
      return await (this.#isMissing ? pooled(name) : this.#run(name));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || this.#isMissing) throw error;
      // Without `getent`, resolve one name at a time to keep the other threads free.
      this.#isMissing = true;
      this.#limit = 1;
      return await pooled(name);
    } finally {
      this.#running--;
      this.#waiting.shift()?.();
    }
  }

  #run(name: string): Promise<LookupAddress[]> {
    const { promise, resolve, reject } = Promise.withResolvers<LookupAddress[]>();
    const child: ChildProcess = spawn(this.#program, ['ahosts', name], {
      env: programEnvironment(process.env, 'lookup'),
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    let output = '';
    const deadline = setTimeout(() => child.kill('SIGKILL'), this.#deadlineMs);
    // If file descriptors are exhausted, there is no output stream, only the error.
    child.on('error', (error) => {
      clearTimeout(deadline);
      reject(error);
    });
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      if (output.length > MAX_OUTPUT_BYTES) child.kill('SIGKILL');
    });
    child.on('close', (_status, signal) => {
      clearTimeout(deadline);
      if (signal) reject(lookupError('EAI_AGAIN', name));
      else resolve(addressesIn(output));
    });
    return promise;
  }
}

/** Parses `getent ahosts`, which prints each address once per socket type. */
function addressesIn(output: string): LookupAddress[] {
  const found = output.split('\n').map((line) => line.split(/\s/, 1)[0] ?? '');
  return [...new Set(found)].flatMap((address) => (isIP(address) ? [{ address, family: isIP(address) }] : []));
}

function isWanted(family: number, wanted: LookupOptions['family']): boolean {
  return !wanted || wanted === family || wanted === `IPv${family}`;
}

function pooled(name: string): Promise<LookupAddress[]> {
  return new Promise((resolve, reject) =>
    poolLookup(name, { all: true }, (error, addresses) =>
      error ? reject(error) : resolve(addresses as LookupAddress[]),
    ),
  );
}

/** Creates an error with the same message as Node. */
function lookupError(code: string, hostname: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`getaddrinfo ${code} ${hostname}`), { code, hostname, syscall: 'getaddrinfo' });
}
