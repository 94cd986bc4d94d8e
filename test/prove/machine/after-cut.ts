import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { Claim, Oracle } from '../oracle.ts';
import { pause } from '../ways/way.ts';
import { UNIT_COMMAND, UNIT_ENVIRONMENT } from './gateway-files.ts';
import { debianKernel } from './image.ts';
import { type DiskImage, writeImage } from './nbd-disk.ts';
import { collect, type Mounts } from './qemu-machine.ts';

const run = promisify(execFile);
const UP_AND_EMPTY_WITHIN_MS = 240_000;
const START_TRIES = 3;

/** State at the moment of a cut: acknowledged values that were not delivered. */
export interface Owed {
  values: readonly Claim[];
  /** Event numbers. */
  events: readonly number[];
}

export interface AfterCut {
  values: { owed: number; missing: number; invented: number; different: number };
  events: { owed: number; missing: number };
}

/** The disk after a cut, mounted on this machine. The kernel replays its journal, as at a boot. */
export async function mounted<Found>(image: DiskImage, look: (root: string) => Promise<Found>): Promise<Found> {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-cut-'));
  const [file, root] = [join(folder, 'disk'), join(folder, 'root')];
  mkdirSync(root);
  const there: string[] = [];
  const mount = async (at: string, ...given: readonly string[]) => {
    await run('mount', [...given, at]);
    there.push(at);
  };
  try {
    await writeImage(image, file);
    await mount(root, '-t', 'ext4', '-o', 'loop', file);
    for (const part of ['proc', 'dev']) await mount(join(root, part), '--bind', `/${part}`);
    return await look(root);
  } finally {
    for (const at of there.reverse()) await run('umount', ['-l', at]);
    // Fails if anything is still mounted below it, so that no files of this machine are removed.
    rmdirSync(root);
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Runs a program in the mounted tree as root and kills it at the end. Returns its output, and the error if it failed.
 */
export async function running<Found>(
  root: string,
  command: readonly string[],
  env: Record<string, string>,
  meanwhile: () => Promise<Found>,
): Promise<Found> {
  const log = join(root, 'root/output');
  const out = openSync(log, 'a');
  const program: ChildProcess = spawn('chroot', [root, ...command], {
    stdio: ['ignore', out, out],
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', ...env },
  });
  closeSync(out);
  const over = once(program, 'exit');
  try {
    return await meanwhile();
  } catch (error) {
    throw new Error(`${error}\n${readFileSync(log, 'utf8').slice(-3_000)}`);
  } finally {
    program.kill('SIGKILL');
    await over;
  }
}

/**
 * Starts the installed agent on the disk that a cut left, with an empty platform. All undelivered acknowledged values
 * must arrive. `oracle` contains all values ever offered.
 */
export async function goOn(
  images: readonly DiskImage[],
  mounts: Mounts,
  owed: Owed,
  oracle: Oracle,
): Promise<AfterCut> {
  const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 }, maxValues: 20_000_000 });
  const ran = new Set<number>();
  const journal = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => {
      body += text;
    });
    request.on('end', () => {
      ran.add((JSON.parse(body) as { content: { data: { value: number } } }).content.data.value);
      response.writeHead(204).end();
    });
  });
  await sandbox.start();
  await new Promise<void>((resolve) => journal.listen(0, '127.0.0.1', resolve));
  try {
    const missingEvents = () => owed.events.filter((number) => !ran.has(number)).length;
    const look = async (root: string) => {
      if (mounts.f2fs !== undefined) await putState(images[1]!, mounts.f2fs, root);
      const ops = await freePort();
      await atHome(root, ops, sandbox.url, (journal.address() as AddressInfo).port);
      const isOver = async () => (await valuesLeft(ops)) === 0 && missingEvents() === 0;
      await running(root, UNIT_COMMAND, UNIT_ENVIRONMENT, async () => {
        const end = performance.now() + UP_AND_EMPTY_WITHIN_MS;
        while (!(await isOver())) {
          const left = await valuesLeft(ops);
          // Missing values are counted. An agent that does not start or drain is reported separately.
          if (performance.now() > end && left === 0) break;
          if (performance.now() > end) throw new Error(`${left} values never left`);
          await pause(250);
        }
      });
    };
    for (let tries = 1; ; tries++) {
      try {
        await mounted(images[0]!, look);
        break;
      } catch (error) {
        // Returns a port that is currently free.
        if (tries === START_TRIES || !String(error).includes('EADDRINUSE')) throw error;
      }
    }
    const events = { owed: owed.events.length, missing: missingEvents() };
    return { values: { owed: owed.values.length, ...oracle.compare(owed.values, sandbox) }, events };
  } finally {
    journal.close();
    journal.closeAllConnections();
    await sandbox.stop();
  }
}

/** Content of the file system of the state folder. */
async function putState(image: DiskImage, options: string, root: string): Promise<void> {
  const tar = join(root, '../state.tar');
  await collect(await debianKernel(), image, 'f2fs', options, tar);
  await run('tar', ['-x', '-C', join(root, 'var/lib/tagferry'), '-f', tar]);
}

/** Replaces addresses with those of this machine. */
async function atHome(root: string, ops: number, platformUrl: string, journal: number): Promise<void> {
  const etc = join(root, 'etc/tagferry');
  const webhook = await freePort();
  const own: Record<string, string> = {
    PLATFORM_URL: platformUrl,
    INGEST_LISTEN: `127.0.0.1:${await freePort()}`,
    OPS_LISTEN: `127.0.0.1:${ops}`,
    WEBHOOK_LISTEN: `127.0.0.1:${webhook}`,
    WEBHOOK_URL: `http://127.0.0.1:${webhook}/webhook`,
  };
  const lines = readFileSync(join(etc, 'agent.env'), 'utf8')
    .split('\n')
    .map((line) => (line.split('=')[0]! in own ? `${line.split('=')[0]}=${own[line.split('=')[0]!]}` : line));
  writeFileSync(join(etc, 'agent.env'), lines.join('\n'));
  const reactions = readFileSync(join(etc, 'reactions.yaml'), 'utf8');
  writeFileSync(
    join(etc, 'reactions.yaml'),
    reactions.replace(/http:\/\/[\d.]+:\d+\//, `http://127.0.0.1:${journal}/`),
  );
  mkdirSync(join(root, 'run/tagferry'), { recursive: true });
}

async function valuesLeft(ops: number): Promise<number | undefined> {
  try {
    const answer = await fetch(`http://127.0.0.1:${ops}/metrics`, { signal: AbortSignal.timeout(5_000) });
    const found = /^tagferry_buffer_values (\S+)/m.exec(await answer.text())?.[1];
    return found === undefined ? undefined : Number(found);
  } catch {
    return undefined;
  }
}
