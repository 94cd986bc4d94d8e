/**
 * Names of devices, brokers and receivers, resolved beside the process.
 *
 * `getaddrinfo` runs on the four threads that libuv shares with all file access, and a silent name server holds a thread for up to a
 * minute: six such names once kept the platform's from being resolved and tokens from being written. So `dns.lookup` of the
 * agent's process asks `getent`, which does the same by the same files (`/etc/hosts`, nsswitch, mDNS) in a process of its own that is
 * ended at a deadline. It is replaced for all, because a client such as that of NATS calls `dns.lookup` itself and accepts no other.
 * The way to the platform alone keeps Node's own (`poolLookup`).
 *
 * Invariants: at most `limit` processes; one name is asked for once at a time; nothing waits longer than the deadline once begun.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import dns, { type LookupAddress, type LookupOptions } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import { programEnvironment } from './programs/environment.ts';

/** Node's own lookup. */
export const poolLookup = dns.lookup as LookupFunction;

export interface NameLookupOptions {
  /** `getent`, or what a test has in its place. */
  program?: string;
  limit?: number;
  deadlineMs?: number;
}

/** A gateway reads some dozen devices by name; a process takes 2 MB. */
const LIMIT = 16;
/** A first name server that is silent costs 5 s before the second is asked. */
const DEADLINE_MS = 12_000;
/** A name has some addresses, of a hundred bytes a line. */
const MAX_OUTPUT_BYTES = 64 * 1024;
/** DNS allows 253 characters. A leading hyphen would be an option. */
const NAME = /^[^\s\0-][^\s\0]{0,254}$/;

type Callback = (error: NodeJS.ErrnoException | null, address: string | LookupAddress[], family?: number) => void;

export class NameLookup {
  readonly #program: string;
  readonly #deadlineMs: number;
  #limit: number;
  /** The program is not there. */
  #isMissing = false;
  #running = 0;
  readonly #waiting: (() => void)[] = [];
  readonly #underWay = new Map<string, Promise<LookupAddress[]>>();

  constructor({ program = 'getent', limit = LIMIT, deadlineMs = DEADLINE_MS }: NameLookupOptions = {}) {
    this.#program = program;
    this.#limit = limit;
    this.#deadlineMs = deadlineMs;
  }

  /** Puts it in the place of `dns.lookup`, for every socket of this process that is given no other. */
  install(): void {
    dns.lookup = this.lookup as typeof dns.lookup;
  }

  /** As `dns.lookup`. Fails with `ENOTFOUND`, or `EAI_AGAIN` at the deadline. */
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
    const known = this.#underWay.get(name);
    if (known) return known;
    const asked = this.#ask(name).finally(() => this.#underWay.delete(name));
    this.#underWay.set(name, asked);
    return asked;
  }

  async #ask(name: string): Promise<LookupAddress[]> {
    while (this.#running >= this.#limit) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#running++;
    try {
      return await (this.#isMissing ? pooled(name) : this.#run(name));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || this.#isMissing) throw error;
      // A system without it: one name at a time leaves the other threads to everything else.
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
    const late = setTimeout(() => child.kill('SIGKILL'), this.#deadlineMs);
    // Without file descriptors there is no output to read, only the error.
    child.on('error', (error) => {
      clearTimeout(late);
      reject(error);
    });
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      if (output.length > MAX_OUTPUT_BYTES) child.kill('SIGKILL');
    });
    child.on('close', (_status, signal) => {
      clearTimeout(late);
      if (signal) reject(lookupError('EAI_AGAIN', name));
      else resolve(addressesIn(output));
    });
    return promise;
  }
}

/** Lines of `getent ahosts`: an address and a type of socket, each address once for every type. */
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

/** As Node words it. */
function lookupError(code: string, hostname: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`getaddrinfo ${code} ${hostname}`), { code, hostname, syscall: 'getaddrinfo' });
}
