/** Contenders of a race: builds of the agent, and syslog-ng and rsyslog as unpacked by `scripts/bench/peers`. */
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { Pool } from 'undici';
import { freePort } from '../../src/base/port-claim.ts';
import { BenchAgent, type Build, CACHE, Program } from './bench-agent.ts';

export interface Contender {
  name: string;
  destination: 'http' | 'lines';
  /** Starts with an empty buffer in `folder` while no program listens on the destination's port. */
  start(folder: string, destinationPort: number): Promise<Running>;
}

export interface Running {
  program: Program;
  /** Folder of the buffer. */
  buffer: string;
  /** Time without writes after which the buffer is at rest. */
  restMs: number;
  /** Prepares the requests. The returned function sends them and resolves when all values are accepted. */
  feed(values: readonly string[], connections: number): () => Promise<void>;
}

const VALUES_PER_REQUEST = 1_000;

/** Splits a list into equal parts. */
function split<T>(list: readonly T[], parts: number): T[][] {
  const size = Math.ceil(list.length / parts);
  return Array.from({ length: parts }, (_, i) => list.slice(i * size, (i + 1) * size));
}

async function postAll(url: string, bodies: readonly Buffer[], connections: number): Promise<void> {
  const pool = new Pool(url, { connections, pipelining: 1 });
  const headers = { 'content-type': 'application/json' };
  const client = async (own: readonly Buffer[]) => {
    for (const body of own) {
      const response = await pool.request({ path: '/v1/values', method: 'POST', body, headers });
      const text = await response.body.text();
      if (response.statusCode !== 204) throw new Error(`the agent responded with ${response.statusCode}: ${text}`);
    }
  };
  await Promise.all(split(bodies, connections).map(client));
  await pool.close();
}

/** A build of the agent, which acknowledges a request when its values are synced. */
export function tagferry(build: Build): Contender {
  return {
    name: build.name,
    destination: 'http',
    async start(folder, destinationPort) {
      // The peers have no request budget. The short interval moves values from the log to segments within seconds.
      const settings = ['REQUESTS_PER_MINUTE=0', 'POST_INTERVAL=1s'];
      const agent = await BenchAgent.start(build, folder, destinationPort, settings);
      return {
        program: agent,
        buffer: agent.state,
        restMs: 4_000,
        feed(values, connections) {
          const parts = split(values, Math.ceil(values.length / VALUES_PER_REQUEST));
          const bodies = parts.map((part) => Buffer.from(`{"values":[${part.join(',')}]}`));
          return () => postAll(agent.url, bodies, connections);
        },
      };
    },
  };
}

/** Sends lines over TCP. Resolves when the other side has read the last line and closed the connection. */
function sendLines(port: number, text: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.end(text));
    socket.resume().once('error', reject).once('close', resolve);
  });
}

interface Daemon {
  name: string;
  configuration(port: number, destinationPort: number, buffer: string): string;
  /** Path of the program and its arguments, relative to the unpacked packages and to the folder of the run. */
  command(folder: string): [string, ...string[]];
  /** Returns the number of values in the buffer. */
  accepted(folder: string): Promise<number>;
}

const unpacked = join(CACHE, 'peers');
const libraries = join(unpacked, 'usr/lib');
/** Returns the path of the entry in `usr/lib` or a folder below whose name matches. */
function library(folder: string, name: RegExp): string {
  return join(libraries, folder, readdirSync(join(libraries, folder)).find((entry) => name.test(entry))!);
}

/** A daemon that receives and forwards one value per line over TCP. It acknowledges nothing. */
function syslogDaemon({ name, configuration, command, accepted }: Daemon): Contender {
  return {
    name,
    destination: 'lines',
    async start(folder, destinationPort) {
      const port = await freePort();
      const buffer = join(folder, 'buffer');
      mkdirSync(buffer);
      writeFileSync(join(folder, 'configuration'), configuration(port, destinationPort, buffer));
      const [path, ...args] = command(folder);
      const multiarch = library('', /-linux-gnu/);
      const folders = [join(libraries, 'syslog-ng'), multiarch, multiarch.replace('/usr/lib/', '/lib/')];
      const program = new Program(join(unpacked, path), args, { LD_LIBRARY_PATH: folders.join(':') });
      const isListening = () => sendLines(port, Buffer.alloc(0)).then(() => true);
      await program.until(`${name} listens`, () => isListening().catch(() => false));
      let expected = 0;
      return {
        program,
        buffer,
        restMs: 2_000,
        feed(values, connections) {
          const texts = split(values, connections).map((part) => Buffer.from(`${part.join('\n')}\n`));
          expected += values.length;
          return async () => {
            await Promise.all(texts.map((text) => sendLines(port, text)));
            await program.until('all values are in the buffer', async () => (await accepted(folder)) >= expected);
          };
        },
      };
    },
  };
}

/** Version folder of the modules, for example `usr/lib/syslog-ng/3.38`. */
const syslogNgModules = () => library('syslog-ng', /^\d+\.\d+$/);

export const syslogNg = syslogDaemon({
  name: 'syslog-ng',
  // The reliable disk buffer has no option to sync.
  configuration: (port, destinationPort, buffer) => `@version: ${syslogNgModules().split('/').at(-1)}
options { stats-level(1); use-dns(no); dns-cache(no); };
source s_in {
  network(ip("127.0.0.1") port(${port}) transport("tcp") flags(no-parse)
    max-connections(16) log-iw-size(160000) log-fetch-limit(1000));
};
destination d_out {
  network("127.0.0.1" port(${destinationPort}) transport("tcp") template("$MESSAGE\\n") time-reopen(1)
    disk-buffer(reliable(yes) disk-buf-size(4294967296) mem-buf-size(10485760) dir("${buffer}")));
};
log { source(s_in); destination(d_out); flags(flow-control); };
`,
  command(folder) {
    const [persist, pid, control] = ['persist', 'pid', 'control'].map((name) => join(folder, name));
    const files = ['-f', join(folder, 'configuration'), '-R', persist!, '-p', pid!, '-c', control!];
    return ['usr/sbin/syslog-ng', '-F', '--no-caps', `--module-path=${syslogNgModules()}`, ...files];
  },
  /** Requests statistics as `syslog-ng-ctl` does. */
  accepted: (folder) =>
    new Promise((resolve, reject) => {
      const socket = connect(join(folder, 'control'), () => socket.write('STATS\n'));
      let text = '';
      socket.on('error', reject).on('data', (chunk) => {
        text += chunk;
        if (!text.endsWith('\n.\n')) return;
        socket.destroy();
        const queued = text.matchAll(/^dst\.[^\n]*;queued;(\d+)$/gm);
        resolve([...queued].reduce((sum, [, count]) => sum + Number(count), 0));
      });
    }),
});

export const rsyslog = syslogDaemon({
  name: 'rsyslog',
  configuration: (port, destinationPort, buffer) => `global(workDirectory="${buffer}" net.enableDNS="off")
module(load="imptcp")
template(name="line" type="list") { property(name="rawmsg") }
ruleset(name="values" queue.type="Disk" queue.filename="values" queue.size="10000000" queue.maxFileSize="64m"
  queue.checkpointInterval="0" queue.syncQueueFiles="off" queue.dequeueBatchSize="1000") {
  action(type="omfwd" target="127.0.0.1" port="${destinationPort}" protocol="tcp" template="line"
    action.resumeRetryCount="-1" action.resumeInterval="1")
}
input(type="imptcp" address="127.0.0.1" port="${port}" ruleset="values")
`,
  command(folder) {
    const files = ['-f', join(folder, 'configuration'), '-i', join(folder, 'pid')];
    return ['usr/sbin/rsyslogd', '-n', ...files, '-M', library('', /-linux-gnu/).concat('/rsyslog')];
  },
  // The input adds a line to the disk queue before it reads the next one and closes the connection.
  accepted: () => Promise.resolve(Number.POSITIVE_INFINITY),
});
