import type { ChildProcess } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import type { FolderRequest } from '../../../../src/sources/csv/folder.ts';
import { Folders } from '../../../../src/sources/csv/folders.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';

/** Program that replies with an empty list, unless the folder does not respond. */
class Program extends EventEmitter {
  readonly requests: FolderRequest[] = [];
  isKilled = false;
  readonly #hung: ReadonlySet<string>;

  constructor(hung: ReadonlySet<string>) {
    super();
    this.#hung = hung;
  }

  send(request: FolderRequest): void {
    this.requests.push(request);
    if (this.#hung.has(request.args[0] as string)) return;
    queueMicrotask(() => this.emit('message', { result: { files: [] } }));
  }

  kill(): void {
    this.isKilled = true;
  }

  unref(): void {}
}

function make() {
  const clock = new ManualClock();
  const programs: Program[] = [];
  const hung = new Set<string>();
  const start = () => {
    const program = new Program(hung);
    programs.push(program);
    return program as unknown as ChildProcess;
  };
  const folders = new Folders(clock, start, (path) => path.split('/')[1]!);
  const open = (path: string, signal = new AbortController().signal) => folders.open(path, signal);
  const list = (folder: ReturnType<typeof open>) => folder.call('list', '', '*');
  return { clock, programs, hung, open, list };
}

const LISTED = { files: [] };
const TIMED_OUT = { code: 'ETIMEDOUT', isLost: true };

describe('process for CSV folders', () => {
  it('is shared by the folders of a file system, and ends with the last of them', async () => {
    const { programs, open, list } = make();
    const folders = ['/a/one', '/a/two', '/b/one'].map((path) => open(path));
    expect(await Promise.all(folders.map(list))).toEqual([LISTED, LISTED, LISTED]);
    expect(programs.length).toBe(2);
    folders[0]!.close();
    expect(await list(folders[1]!)).toEqual(LISTED);
    folders[1]!.close();
    expect(programs.map(({ isKilled }) => isKilled)).toEqual([true, false]);
    expect(await list(open('/a/three'))).toEqual(LISTED);
    expect(programs.length).toBe(3);
  });

  it('is killed at the deadline of a call, which fails its waiting calls and delays no other file system', async () => {
    const { clock, programs, hung, open, list } = make();
    hung.add('/a/one');
    const [one, two, other] = ['/a/one', '/a/two', '/b/one'].map((path) => open(path)) as [never, never, never];
    const failures = [
      expect(list(one)).rejects.toMatchObject(TIMED_OUT),
      expect(list(two)).rejects.toMatchObject(TIMED_OUT),
    ];
    expect(await list(other)).toEqual(LISTED);
    await clock.advance(30_000);
    await Promise.all(failures);
    expect(programs.map(({ isKilled }) => isKilled).toSorted()).toEqual([false, true]);
    // No other process is started while the killed one has not exited.
    await expect(list(two)).rejects.toMatchObject(TIMED_OUT);
    expect(programs.length).toBe(2);
    programs.find(({ isKilled }) => isKilled)!.emit('exit', null, 'SIGKILL');
    expect(await list(two)).toEqual(LISTED);
  });

  it('is restarted after it exited', async () => {
    const { programs, hung, open, list } = make();
    hung.add('/a/one');
    const folder = open('/a/one');
    const failure = expect(list(folder)).rejects.toMatchObject({
      code: 'ECHILD',
      message: expect.stringContaining('SIGSEGV'),
    });
    await expect.poll(() => programs[0]?.requests.length).toBe(1);
    programs[0]!.emit('exit', null, 'SIGSEGV');
    await failure;
    hung.clear();
    expect(await list(folder)).toEqual(LISTED);
    expect(programs.length).toBe(2);
  });
});
