import { chownSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';
import { contentOf } from '../../process/event-plant.ts';
import { FarEnd } from '../far-end.ts';
import { Oracle, summed, type Verdict } from '../oracle.ts';
import { PushWay } from '../ways/push-way.ts';
import { pause, Readings } from '../ways/way.ts';
import { debianKernel, makeImage } from './image.ts';
import { type Mounts, QemuGateway } from './qemu-gateway.ts';

const TOKEN = 'the-token-of-those-who-push';
const PER_SECOND = 100;
const DRAINED_WITHIN_MS = 300_000;
/** Of this round's plug: what the machine does when it is cut off. */
export const MOMENTS = [
  'ingest',
  'flush and compaction',
  'settlement',
  'vacuum',
  'salvage',
  'package upgrade',
] as const;
export type Moment = (typeof MOMENTS)[number];

export interface CutsOptions {
  deb: string;
  /** Another version, for the upgrade. */
  newer: string;
  seed: number;
  moments: readonly Moment[];
  mounts: Mounts;
  /** The control: `synchronous=NORMAL`. */
  isNormal?: boolean;
  say: (what: string) => void;
}

export interface CutsReport {
  seed: number;
  cuts: number;
  moments: Record<string, number>;
  bootMs: number[];
  values: Verdict;
  allowedRepeats: number;
  events: { acknowledged: number; missing: number; repeated: number };
  flushes: number;
  droppedBlocks: number;
  /** Errors of file systems that the kernel or the log told of. */
  said: string[];
}

/**
 * Pulls the plug of a machine again and again: values and events come over the network, acknowledged as ever; qemu is killed; its disks lose
 * what was not flushed; the next boot mounts them. In the end everything acknowledged is at the far end, or it is counted as missing.
 */
export async function pullPlugs(options: CutsOptions): Promise<CutsReport> {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-plug-'));
  const run = new Cuts(options, folder);
  try {
    return await run.run();
  } finally {
    await run.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

class Cuts {
  readonly #options: CutsOptions;
  readonly #folder: string;
  readonly #chance: ManualClock;
  readonly #oracle = new Oracle();
  readonly #sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 }, maxValues: 20_000_000 });
  readonly #farEnd = new FarEnd(this.#sandbox, 500, 4);
  readonly #ran: number[] = [];
  readonly #journal: Server;
  #ways: PushWay[] = [];
  #gateway: QemuGateway | undefined;
  #events: NodeJS.Timeout | undefined;
  #serial = 0;
  readonly #sent = new Set<number>();

  constructor(options: CutsOptions, folder: string) {
    this.#options = options;
    this.#folder = folder;
    this.#chance = new ManualClock(0, options.seed);
    this.#journal = createServer((request, response) => {
      let body = '';
      request.setEncoding('utf8').on('data', (text: string) => {
        body += text;
      });
      request.on('end', () => {
        const { content } = JSON.parse(body) as { content: { data: { value: number } } };
        this.#ran.push(content.data.value);
        response.writeHead(204).end();
      });
    });
  }

  async run(): Promise<CutsReport> {
    const { say, moments, mounts, seed } = this.#options;
    await this.#sandbox.start();
    await new Promise<void>((resolve) => this.#journal.listen(0, '127.0.0.1', resolve));
    const kernel = await debianKernel();
    // The ports are known before the image, which has them in its settings.
    const ports = { webhook: 0 };
    const image = await makeImage(this.#folder, this.#options.deb, (root) => this.#write(root, ports));
    const gateway = await QemuGateway.open(kernel, image, mounts, this.#folder);
    this.#gateway = gateway;
    const bootMs = [await gateway.boot()];
    say(`booted in ${(bootMs[0]! / 1000).toFixed(1)} s`);
    await gateway.sh(
      `sed -i 's,^WEBHOOK_URL=.*,WEBHOOK_URL=http://127.0.0.1:${gateway.ports.webhook}/webhook,' /etc/tagferry/agent.env; systemctl restart tagferry`,
    );
    this.#open(gateway);
    const counts: Record<string, number> = {};
    for (const moment of moments) {
      counts[moment] = (counts[moment] ?? 0) + 1;
      await this.#reach(moment, gateway);
      await pause(500 + this.#chance.random() * 3_000);
      // Either all that was not flushed is gone, or the disk had written some of it in an order of its own.
      const keepsSome = this.#chance.random() < 0.5;
      const { dropped } = gateway;
      await gateway.cut(keepsSome ? () => this.#chance.random() < 0.5 : undefined);
      this.#farEnd.crashed();
      say(`cut ${bootMs.length} in ${moment}: ${gateway.dropped - dropped} blocks lost`);
      bootMs.push(await gateway.boot());
      if (moment === 'package upgrade') await this.#finishUpgrade(gateway);
    }
    await this.#sandbox.goOnline();
    await Promise.all(this.#ways.map((way) => way.rest()));
    clearInterval(this.#events);
    await this.#drain(gateway);
    const events = await this.#judgeEvents();
    const said = await gateway.sh(
      'journalctl -k --no-pager 2>/dev/null | grep -iE \'EXT4-fs error|F2FS-fs.*(error|corrupt)\' | tail -3; journalctl -u tagferry --no-pager -o cat | grep -oE \'"event":"(store.corrupt|store.lost)[^"]*"\' | sort | uniq -c',
    );
    const values = summed(this.#oracle.judge(this.#sandbox).values());
    return {
      seed,
      cuts: moments.length,
      moments: counts,
      bootMs,
      values,
      allowedRepeats: this.#farEnd.allowed,
      events,
      flushes: gateway.flushes,
      droppedBlocks: gateway.dropped,
      said: said.split('\n').filter(Boolean),
    };
  }

  async close(): Promise<void> {
    clearInterval(this.#events);
    await Promise.all(this.#ways.map((way) => way.close()));
    await this.#gateway?.close();
    this.#journal.close();
    this.#journal.closeAllConnections();
    await this.#sandbox.stop();
  }

  /** What an operator adds, and the door by which this test goes in. */
  #write(root: string, ports: { webhook: number }): void {
    const host = (url: string) => url.replace('127.0.0.1', '10.0.2.2');
    const journal = `http://10.0.2.2:${(this.#journal.address() as AddressInfo).port}/`;
    const env = {
      PLATFORM_URL: host(this.#sandbox.url),
      CLIENT_ID: SANDBOX_CREDENTIALS.clientId,
      TECHNICAL_USERNAME: SANDBOX_CREDENTIALS.technicalUsername,
      POST_INTERVAL: '1s',
      COMMIT_INTERVAL: '200ms',
      POST_MAX_VALUES: '500',
      REQUESTS_PER_MINUTE: '0',
      INGEST_LISTEN: '0.0.0.0:8470',
      INGEST_TOKEN: TOKEN,
      WEBHOOK_LISTEN: '0.0.0.0:8471',
      WEBHOOK_URL: `http://127.0.0.1:${ports.webhook}/webhook`,
      WEBHOOK_POLL: '10s',
    };
    const etc = join(root, 'etc/tagferry');
    // Written over, not replaced: owner and mode stay as the package set them.
    const text = Object.entries(env).map(([key, value]) => `${key}=${value}\n`);
    writeFileSync(join(etc, 'agent.env'), text.join(''));
    const { gid } = statSync(join(etc, 'agent.env'));
    writeFileSync(
      join(etc, 'tags.yaml'),
      `tags:\n${this.#pushWays(() => Promise.resolve(0))
        .map(({ tags }) => tags)
        .join('')}`,
    );
    writeFileSync(
      join(etc, 'reactions.yaml'),
      `reactions:\n  - name: tell\n    on: threshold_reached\n    max_age: 30d\n    do: [{ post: "${journal}" }]\n`,
    );
    for (const name of ['tags.yaml', 'reactions.yaml']) chownSync(join(etc, name), 0, gid);
    writeFileSync(join(etc, 'credentials/client_secret'), SANDBOX_CREDENTIALS.clientSecret, { mode: 0o600 });
    writeFileSync(join(etc, 'credentials/technical_password'), SANDBOX_CREDENTIALS.technicalPassword, { mode: 0o600 });
    copyFileSync(this.#options.newer, join(root, 'root/newer.deb'));
    mkdirSync(join(root, 'opt/test'), { recursive: true });
    for (const name of ['machine/shell.mjs', 'normal-sync.mjs']) {
      copyFileSync(join(import.meta.dirname, '..', name), join(root, 'opt/test', basename(name)));
    }
    // The shell's own runtime: an upgrade takes that of the package away.
    copyFileSync(join(root, 'usr/lib/tagferry/bin/node'), join(root, 'opt/test/node'));
    const system = join(root, 'etc/systemd/system');
    writeFileSync(
      join(system, 'test-shell.service'),
      '[Service]\nExecStart=/opt/test/node /opt/test/shell.mjs\n[Install]\nWantedBy=multi-user.target\n',
    );
    mkdirSync(join(system, 'multi-user.target.wants'), { recursive: true });
    for (const [unit, at] of [
      ['test-shell.service', join(system, 'test-shell.service')],
      ['tagferry.service', join(root, 'lib/systemd/system/tagferry.service')],
    ] as const) {
      rmSync(join(system, 'multi-user.target.wants', unit), { force: true });
      symlinkSync(at.slice(root.length), join(system, 'multi-user.target.wants', unit));
    }
    if (this.#options.isNormal) {
      mkdirSync(join(system, 'tagferry.service.d'), { recursive: true });
      writeFileSync(
        join(system, 'tagferry.service.d/control.conf'),
        '[Service]\nEnvironment=NODE_OPTIONS=--import=/opt/test/normal-sync.mjs\n',
      );
    }
  }

  #pushWays(post: (path: string, type: string, body: string) => Promise<number>): PushWay[] {
    const readings = new Readings(Date.now() - 3_600_000, () => this.#chance.random());
    const context = { oracle: this.#oracle, readings, folder: this.#folder };
    return (['http', 'line'] as const).map((name, i) => new PushWay(name, 881 + i, context, this.#farEnd, post));
  }

  /** Values and events begin to come. */
  #open(gateway: QemuGateway): void {
    this.#ways = this.#pushWays(async (path, type, body) => {
      const headers = { 'content-type': type, authorization: `Bearer ${TOKEN}` };
      const url = `http://127.0.0.1:${gateway.ports.ingest}${path}`;
      const answer = await fetch(url, { method: 'POST', headers, body, signal: AbortSignal.timeout(10_000) });
      await answer.arrayBuffer();
      return answer.status;
    });
    for (const way of this.#ways) way.produce(PER_SECOND / this.#ways.length);
    this.#events = setInterval(() => {
      if (this.#sandbox.webhooks().length === 0) return;
      const number = ++this.#serial;
      this.#sent.add(number);
      const content = () => contentOf(number, true);
      this.#sandbox.announcer.announce({ type: 'threshold_reached', audience: () => true, content });
    }, 500);
  }

  /** Until the machine does what it is to be cut off in. */
  async #reach(moment: Moment, gateway: QemuGateway): Promise<void> {
    const { random } = { random: () => this.#chance.random() };
    if (moment === 'ingest' || moment === 'flush and compaction') await this.#sandbox.goOffline('refuse');
    else await this.#sandbox.goOnline();
    // What is not posted within seconds is flushed; what was flushed often is compacted.
    if (moment === 'flush and compaction') await pause(10_000 + random() * 10_000);
    if (moment === 'settlement') await pause(1_000);
    // Pages fall free as the backlog leaves.
    if (moment === 'vacuum') await pause(6_000 + random() * 4_000);
    if (moment === 'salvage') {
      const damage =
        'dd if=/dev/urandom of=/var/lib/tagferry/buffer.db bs=1024 count=1 seek=5 conv=notrunc status=none';
      // A page of the file goes bad while the daemon is away; not one that holds what was acknowledged.
      await gateway.sh(
        `systemctl stop tagferry; [ ! -e /var/lib/tagferry/buffer.db ] || ${damage}; sync; systemctl start --no-block tagferry`,
      );
    }
    if (moment === 'package upgrade') {
      await gateway.sh('(dpkg -i /root/newer.deb >/root/upgrade.log 2>&1 &)');
      await pause(random() * 8_000);
    }
  }

  /** As an operator does after a power cut in the middle of it. */
  async #finishUpgrade(gateway: QemuGateway): Promise<void> {
    await gateway.sh(
      'dpkg --configure -a; dpkg -i /root/newer.deb; dpkg -i /root/tagferry.deb; systemctl start tagferry',
    );
  }

  async #drain(gateway: QemuGateway): Promise<void> {
    for (const end = performance.now() + DRAINED_WITHIN_MS; ; await pause(1_000)) {
      const left = await gateway.sh(
        `/opt/test/node -e 'fetch("http://127.0.0.1:8472/metrics").then(r=>r.text()).then(t=>console.log(/^tagferry_buffer_values (\\S+)/m.exec(t)?.[1]))'`,
      );
      if (left === '0') return;
      if (performance.now() > end) throw new Error(`${left} values never left\n${gateway.console}`);
    }
  }

  async #judgeEvents(): Promise<CutsReport['events']> {
    const count = () => {
      const taken = new Set(
        this.#sandbox
          .deliveries()
          .filter(({ status }) => status === 'delivered')
          .map(({ payload }) => (JSON.parse(payload) as { content: { data: { value: number } } }).content.data.value),
      );
      const ran = new Set(this.#ran);
      const missing = [...taken].filter((number) => !ran.has(number)).length;
      return { acknowledged: taken.size, missing, repeated: this.#ran.length - ran.size };
    };
    for (const end = performance.now() + 60_000; performance.now() < end; await pause(200)) {
      this.#sandbox.clock.advance(5_000);
      const { acknowledged, missing } = count();
      if (missing === 0 && acknowledged === this.#sent.size) break;
    }
    return count();
  }
}
