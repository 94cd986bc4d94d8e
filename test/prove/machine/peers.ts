import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../../src/base/port-claim.ts';
import { debianTreeWith } from '../../host/debian-tree.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';
import { Loop, pause } from '../ways/way.ts';
import { mounted, running } from './after-cut.ts';
import { HOST } from './gateway-files.ts';
import { debianKernel, enable, makeImage } from './image.ts';
import { MountedMachine } from './mounted-machine.ts';
import { type Forward, forwards, QemuMachine } from './qemu-machine.ts';

const PER_SECOND = 50;
/** Time after which a line without its own acknowledgement counts as accepted, if its connection stayed open. */
const TAKEN_AFTER_MS = 5_000;
/** Minimum time between two cuts. */
const LEAD_MS = 8_000;
const PATIENCE_MS = 10_000;
/** Time without arrivals after which the result is final. */
const SILENT_MS = 15_000;

interface Peer {
  package: string;
  more: readonly string[];
  unit: string;
  /** Name of the program's queue. */
  queue: string;
  /** Configuration for an unavailable destination, from its own documentation. */
  file: string;
  configuration(port: number): string;
  command: readonly string[];
  /** Protocol. RELP acknowledges each line. */
  speaks: 'relp' | 'tcp';
  /** Command that replaces its unit in a machine, for a mounted tree. The port is the final argument. */
  here?: readonly string[];
  /** Prepares the tree, in addition to the packages. */
  install?(root: string): void;
  /** Command that prints the version. Default: the package version. */
  version?: string;
}

/** Source folder of ThingsBoard's gateway, which Debian does not contain. Its storage runs from there. */
const THINGSBOARD = process.env.THINGSBOARD_GATEWAY;

/**
 * Runs one of its storage types between our own sender and receiver, because the rest of that gateway needs packages
 * that Debian does not contain.
 */
function thingsboard(kind: 'file' | 'sqlite'): Peer {
  const at = 'opt/thingsboard';
  const feeder = (does: 'take' | 'give') => ['/usr/bin/python3', `/${at}/feeder.py`, kind, does];
  return {
    package: 'python3',
    more: ['python3-simplejson'],
    unit: '',
    queue: `storage \`"type": "${kind}"\``,
    file: 'etc/thingsboard-feeder',
    configuration: (port) => `${HOST} ${port}\n`,
    command: feeder('give'),
    here: feeder('take'),
    speaks: 'relp',
    version: `sed -n 's/^VERSION = "\\(.*\\)"$/\\1/p' /${at}/source/thingsboard_gateway/version.py`,
    install: (root) => {
      mkdirSync(join(root, at, 'source'), { recursive: true });
      cpSync(join(THINGSBOARD!, 'thingsboard_gateway'), join(root, at, 'source/thingsboard_gateway'), {
        recursive: true,
      });
      copyFileSync(join(import.meta.dirname, 'thingsboard-feeder.py'), join(root, at, 'feeder.py'));
      mkdirSync(join(root, 'var/lib/thingsboard-gateway'), { recursive: true });
    },
  };
}

export const PEERS = {
  rsyslog: {
    package: 'rsyslog',
    more: ['rsyslog-relp'],
    unit: 'rsyslog.service',
    queue: 'disk-assisted queue (`queue.type="linkedList" queue.filename`)',
    file: 'etc/rsyslog.conf',
    configuration: (port) => `module(load="imrelp")
input(type="imrelp" port="5514")
global(workDirectory="/var/spool/rsyslog")
action(type="omfwd" target="${HOST}" port="${port}" protocol="tcp" action.resumeRetryCount="-1" action.resumeInterval="2"
  queue.type="linkedList" queue.filename="forward" queue.saveOnShutdown="on" queue.maxDiskSpace="1g")
`,
    command: ['/usr/sbin/rsyslogd', '-n', '-iNONE'],
    speaks: 'relp',
  },
  'syslog-ng': {
    package: 'syslog-ng-core',
    more: [],
    unit: 'syslog-ng.service',
    queue: '`disk-buffer(reliable(yes))`',
    file: 'etc/syslog-ng/syslog-ng.conf',
    configuration: (port) => `@version: 3.38
options { time-reopen(2); };
source outside { network(transport("tcp") port(5514)); };
destination onward { network("${HOST}" port(${port}) transport("tcp") persist-name("onward")
  disk-buffer(reliable(yes) mem-buf-size(1048576) disk-buf-size(16777216) dir("/var/lib/syslog-ng"))); };
log { source(outside); destination(onward); flags(flow-control); };
`,
    command: ['/usr/sbin/syslog-ng', '-F', '--no-caps'],
    speaks: 'tcp',
  },
  'thingsboard-file': thingsboard('file'),
  'thingsboard-sqlite': thingsboard('sqlite'),
} satisfies Record<string, Peer>;
export type PeerName = keyof typeof PEERS;

/** Peers that can run on this machine. */
export function peersHere(): PeerName[] {
  const names = Object.keys(PEERS) as PeerName[];
  return names.filter((name) => THINGSBOARD !== undefined || !name.startsWith('thingsboard'));
}

interface PeerCut {
  /** Number of accepted lines that were not reported as delivered. */
  taken: number;
  missing: number;
  /** Number of unflushed writes of its disk. */
  unflushed: number;
}

export interface PeerReport {
  peer: PeerName;
  version: string;
  /** Condition for an accepted line. */
  speaks: Peer['speaks'];
  seed: number;
  cuts: PeerCut[];
  /** Control: number of accepted lines lost after a clean stop within a minute. */
  missingAfterStop?: number;
}

/**
 * The same cuts for other programs that buffer data while their destination is unavailable: on a separate machine, with
 * the packages of Debian and the configuration from their own documentation.
 */
export async function pullPlugOfPeer(
  name: PeerName,
  options: { seed: number; cuts: number; say: (what: string) => void },
): Promise<PeerReport> {
  const peer: Peer = PEERS[name];
  const chance = new ManualClock(0, options.seed);
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-peer-'));
  const tree = await debianTreeWith(peer.package, [peer.package, ...peer.more]);
  const { lines } = await forwards({ lines: 5514 });
  // Nothing listens there while the machine runs.
  const awayPort = 9;
  const image = await makeImage(folder, tree, [], (root) => {
    writeFileSync(join(root, peer.file), peer.configuration(awayPort));
    mkdirSync(join(root, 'var/spool/rsyslog'), { recursive: true });
    peer.install?.(root);
    if (peer.here === undefined) enable(root, 'multi-user.target', peer.unit);
  });
  const machine =
    peer.here === undefined
      ? await QemuMachine.open(await debianKernel(), image, {}, [lines], folder)
      : await MountedMachine.open(image, 'rw', { command: [...peer.here, `${lines.port}`], environment: {} }, folder);
  const sender = new Sender(peer.speaks, lines);
  try {
    options.say(`${name} is up after ${Math.round((await machine.boot(() => sender.open())) / 1000)} s`);
    const version = await machine.sh(peer.version ?? `dpkg -s ${peer.package} | sed -n 's/^Version: //p'`);
    sender.start();
    const cuts: PeerCut[] = [];
    while (cuts.length < options.cuts) {
      await pause(LEAD_MS + chance.random() * LEAD_MS);
      let taken: number[] = [];
      const note = () => {
        taken = sender.taken();
      };
      const before = chance.random() < 0.5 ? 'a write' : 'a flush';
      const plug = { before, count: 1 + Math.floor(chance.random() * 4), withinMs: PATIENCE_MS } as const;
      const { images, fates } = await machine.glimpse(plug, note);
      const arrived = await mounted(images[0]!, (root) => arrivals(root, peer));
      const missing = taken.filter((number) => !arrived.has(number)).length;
      cuts.push({ taken: taken.length, missing, unflushed: fates.lost });
      options.say(`${name}, cut ${cuts.length}: ${taken.length} taken, ${missing} missing`);
    }
    await sender.rest();
    await pause(TAKEN_AFTER_MS + 1_000);
    const taken = sender.taken();
    const isStopped = await stop(machine, peer).then(
      () => true,
      () => false,
    );
    const [image] = machine.images();
    const arrived = await mounted(image!, (root) => arrivals(root, peer));
    const missingAfterStop = isStopped ? taken.filter((number) => !arrived.has(number)).length : undefined;
    options.say(
      `${name}, after an orderly stop: ${taken.length} taken, ${missingAfterStop ?? 'not known how many'} missing`,
    );
    if (arrived.size === 0) throw new Error('nothing is heard of what was kept: this proves nothing');
    return {
      peer: name,
      ...(missingAfterStop === undefined ? {} : { missingAfterStop }),
      version,
      speaks: peer.speaks,
      seed: options.seed,
      cuts,
    };
  } finally {
    await sender.close();
    await machine.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Stops the program as an operator does. Rejects after a minute. */
async function stop(machine: QemuMachine | MountedMachine, peer: Peer): Promise<void> {
  if (machine instanceof QemuMachine) return void (await machine.sh(`timeout 60 systemctl stop ${peer.unit} && sync`));
  await machine.service('stop');
  await machine.sh('sync -f /var/lib');
}

/** Restarts the program from the disk after a cut, with its destination available. */
async function arrivals(root: string, peer: Peer): Promise<Set<number>> {
  const arrived = new Set<number>();
  let lastMs = performance.now();
  const farEnd: Server = createServer((socket) => {
    let text = '';
    socket.on('error', () => {}).setEncoding('utf8');
    socket.on('data', (chunk: string) => {
      text += chunk;
      for (const [, number] of text.matchAll(/line=(\d+)\./g)) arrived.add(Number(number));
      text = text.slice(text.lastIndexOf('\n') + 1);
      lastMs = performance.now();
    });
  });
  await new Promise<void>((resolve) => farEnd.listen(0, '127.0.0.1', resolve));
  const sockets = new Set<Socket>();
  farEnd.on('connection', (socket) => sockets.add(socket));
  try {
    const file = join(root, peer.file);
    const { port } = farEnd.address() as AddressInfo;
    const own = peer
      .configuration(port)
      .replaceAll(HOST, '127.0.0.1')
      .replaceAll('5514', String(await freePort()));
    writeFileSync(file, own);
    // Leftovers from processes on the previous machine.
    for (const name of readdirSync(join(root, 'run'))) if (name.endsWith('.pid')) rmSync(join(root, 'run', name));
    await running(root, peer.command, {}, async () => {
      lastMs = performance.now();
      while (performance.now() - lastMs < SILENT_MS) await pause(200);
    });
    if (arrived.size === 0) process.stderr.write(readFileSync(join(root, 'root/output'), 'utf8').slice(-500));
    return arrived;
  } finally {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => farEnd.close(resolve));
  }
}

/** Sends numbered lines and records which of them were accepted. */
class Sender {
  readonly #speaks: Peer['speaks'];
  readonly #port: number;
  readonly #sentMs: number[] = [];
  readonly #acknowledged = new Set<number>();
  #socket: Socket | undefined;
  #isOpen = false;
  #transaction = 1;
  readonly #loop = new Loop(async () => this.#send());

  constructor(speaks: Peer['speaks'], { port }: Forward) {
    this.#speaks = speaks;
    this.#port = port;
  }

  /** Whether the program accepts connections. */
  async open(): Promise<boolean> {
    this.#socket?.destroy();
    const socket = connect(this.#port, '127.0.0.1');
    this.#socket = socket;
    let text = '';
    let isClosed = false;
    socket.on('error', () => {}).setEncoding('utf8');
    socket.on('close', () => {
      isClosed = true;
      this.#isOpen = false;
    });
    socket.on('data', (chunk: string) => {
      text += chunk;
      const whole = text.lastIndexOf('\n') + 1;
      for (const [, number] of text.slice(0, whole).matchAll(/^(\d+) rsp \d+ 200/gm)) this.#answered(Number(number));
      text = text.slice(whole);
    });
    if (this.#speaks === 'relp') this.#frame('open', 'relp_version=0\nrelp_software=test\ncommands=syslog');
    await pause(2_000);
    if (this.#speaks === 'tcp') this.#isOpen = !isClosed && !socket.connecting;
    return this.#isOpen;
  }

  #answered(transaction: number): void {
    this.#isOpen = true;
    // The first acknowledgement opened the session.
    if (transaction > 1) this.#acknowledged.add(transaction - 2);
  }

  #frame(command: string, data: string): void {
    this.#socket?.write(`${this.#transaction++} ${command} ${Buffer.byteLength(data)} ${data}\n`);
  }

  start(): void {
    this.#loop.start(1_000 / PER_SECOND);
  }

  #send(): void {
    if (!this.#isOpen) return;
    const number = this.#sentMs.push(performance.now()) - 1;
    const line = `<13>1 2026-01-01T00:00:00Z plant test - - - line=${number}.`;
    if (this.#speaks === 'relp') this.#frame('syslog', line);
    else this.#socket?.write(`${line}\n`);
  }

  /** Numbers of the accepted lines. */
  taken(): number[] {
    if (this.#speaks === 'relp') return [...this.#acknowledged];
    if (!this.#isOpen) throw new Error('the connection broke');
    const before = performance.now() - TAKEN_AFTER_MS;
    return this.#sentMs.flatMap((sentMs, number) => (sentMs < before ? [number] : []));
  }

  async rest(): Promise<void> {
    await this.#loop.end();
  }

  async close(): Promise<void> {
    await this.rest();
    this.#socket?.destroy();
  }
}
