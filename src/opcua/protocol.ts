/**
 * What the daemon and the program that reads OPC UA say to each other: a line of JSON each, the daemon's on the program's standard
 * input, the program's on its standard output. The daemon imports this file of the room and no other: the rest loads node-opcua.
 *
 *   daemon                        reader                          server
 *     │──── start: what to read ───►│──── session, subscription ───►│
 *     │                             │◄─── notification 17 ──────────│
 *     │◄─── values, ordinal 1 ──────│
 *     │  (on disk)                  │
 *     │──── stored: 1 ─────────────►│──── acknowledges 17 ─────────►│
 */

/** Interval between heartbeats of the reader, in milliseconds. */
export const HEARTBEAT_MS = 5_000;
/** A message of any size reaches the agent in lines of at most so many values. */
export const MAX_VALUES_PER_LINE = 5_000;

export type SecurityPolicyName = 'None' | 'Basic256Sha256' | 'Aes128_Sha256_RsaOaep' | 'Aes256_Sha256_RsaPss';

/** A certificate and its key, as files. */
export interface KeyPairFiles {
  certFile: string;
  keyFile: string;
}

export interface Endpoint {
  url: string;
  policy: SecurityPolicyName;
  mode: 'None' | 'Sign' | 'SignAndEncrypt';
  /** What this gateway shows, or the folder in which one is kept, and made where there is none. */
  identity: KeyPairFiles | { folder: string };
  /** Certificates of servers that are trusted, one a file. */
  trustFolder: string;
  /** Who reads; left out, nobody in particular. */
  user?: { name: string; passwordFile?: string } | KeyPairFiles;
}

/** One node to be monitored, and how. Two values that ask for the same share one. */
export interface Item {
  node: string;
  /** Of an array: which element. */
  index?: number;
  /** 0 is as fast as the server can. */
  samplingMs: number;
  queueSize: number;
  trigger: 'status' | 'value' | 'timestamp';
  /** Absolute, in the server's own unit. */
  deadband?: number;
}

/** What is known of a subscription that may still live on the server. */
export interface KeptSubscription {
  id: number;
  /** When the server started that has it: another one may use the number for somebody else's. */
  serverStartMs: number;
  items: readonly KeptItem[];
  /** Of its last message that is on disk; left out, none is. */
  stored?: number;
}

/** `key` tells what was asked for (`keyOf`). */
export type KeptItem = readonly [key: string, handle: number, monitoredItem: number];

export interface ReaderTask {
  endpoint: Endpoint;
  /** None: a connection to ask over. */
  items: readonly Item[];
  kept?: KeptSubscription;
}

export type DaemonLine =
  | { start: ReaderTask }
  /** Everything up to the message with this ordinal is on disk. */
  | { stored: number }
  | { ask: number; question: Question }
  /** Asks a server what it offers, and who it is; nothing else is done with this process. */
  | { inspect: Inspection }
  /** The subscription is not wanted any more. */
  | { leave: true };

export type Inspection = Pick<Endpoint, 'url' | 'identity'>;

export type Inspected =
  | {
      /** The file with this gateway's certificate. */
      own: string;
      /** Of the server: DER in base64; left out, it has none. */
      certificate?: string;
      endpoints: readonly { policy: string; mode: string; users: readonly string[] }[];
    }
  | { failed: string };

export type Question =
  /** Reads each item of the task once. */
  | { read: readonly Item[] }
  /** What is below a node or a path, slowly; everything below Objects where none is named. */
  | { browse: readonly string[] };

/** Item (its place in the task), number (`null`: there is none), milliseconds (`null`: it came without), status. */
export type ReadValue = readonly [item: number, raw: number | null, timeMs: number | null, status: Status];

/** Good, uncertain, bad: the severity of a status code. */
export type Status = 0 | 1 | 2;

export interface FoundNode {
  node: string;
  /** Names from Objects down, `/` between them. */
  path: string;
  sample: string;
}

export type ReaderLine =
  | { connected: true; certificateEndsMs?: number }
  | { connected: false; problem: string; hint?: string }
  | { subscription: Omit<KeptSubscription, 'stored'>; isNew: boolean }
  /** Values of a message whose last line follows: no line carries more than `MAX_VALUES_PER_LINE`. */
  | { values: readonly ReadValue[] }
  /** The last values of a message. `ordinal` counts the messages of this process; `sequence` is the number that the server gave it. */
  | { values: readonly ReadValue[]; ordinal: number; subscription: number; sequence: number; overflows: number }
  /** Items that the server does not give, and why; replaces what was said before. */
  | { refused: readonly (readonly [item: number, why: string])[] }
  /** Messages that the server no longer had. */
  | { lost: number }
  /** The server sent a message that exceeds this size, in bytes. It was discarded, and its subscription is replaced. */
  | { oversized: number }
  /** Sent every `HEARTBEAT_MS`, whatever the server does. */
  | { alive: true }
  | { answer: number; values: readonly (readonly [...ReadValue, why: string])[] }
  | { answer: number; found: FoundNode }
  | { answer: number; done: number; total: number }
  | { answer: number; failed: string; hint?: string }
  | { answer: number; end: true }
  | { inspected: Inspected };

/** What of an item makes it another one for the server. */
export function keyOf({ node, index, samplingMs, queueSize, trigger, deadband }: Item): string {
  return [node, index ?? '', samplingMs, queueSize, trigger, deadband ?? ''].join(' ');
}
