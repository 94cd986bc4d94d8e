import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const EXAMPLES = join(import.meta.dirname, '../../systemd/examples');

let groups = 0;

/**
 * A control group with the memory bounds of an example in `systemd/examples`, made by this process below its own: as systemd makes one of
 * the unit. Where none can be made it throws: a test that needs bounds shows nothing without them.
 *
 * Version 2 of the control groups has both bounds. Version 1 knows none that only slows down: there MemoryMax alone counts.
 */
export class MemoryBounds {
  readonly #group: string;
  readonly #isV2: boolean;

  /** `maxMb`: hard limit in MiB in place of the example's bounds. */
  constructor(example: 'bounds.conf' | 'bounds-with-commands.conf' = 'bounds.conf', maxMb?: number) {
    const bound = (name: 'MemoryHigh' | 'MemoryMax') => (maxMb === undefined ? shipped(example, name) : `${maxMb}M`);
    const { own, isV2 } = memoryGroup();
    this.#isV2 = isV2;
    this.#group = join(own, `tagferry-test-${process.pid}-${++groups}`);
    try {
      if (isV2) writeFileSync(join(own, 'cgroup.subtree_control'), '+memory');
      mkdirSync(this.#group);
      if (isV2) this.#write('memory.high', bound('MemoryHigh'));
      this.#write(isV2 ? 'memory.max' : 'memory.limit_in_bytes', bound('MemoryMax'));
    } catch (cause) {
      throw new Error(
        `no control group with a memory bound can be made in ${own}: this test needs root's rights there`,
        {
          cause,
        },
      );
    }
    // What is swapped out is out of the bound's sight; a gateway has no swap.
    if (!isV2) this.#write('memory.swappiness', '0');
    else this.#writeWhereKnown('memory.swap.max', '0');
  }

  /** What a command is preceded by to run in the group, it and all that it starts. */
  get surroundings(): string[] {
    return ['sh', '-c', 'echo 0 >"$0" && exec "$@"', join(this.#group, 'cgroup.procs')];
  }

  /** How often the kernel ended a process of the group for memory. */
  get kills(): number {
    const text = this.#read(this.#isV2 ? 'memory.events' : 'memory.oom_control');
    return Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? Number.NaN);
  }

  /** What the group holds now that nothing but its processes' end gives back, in MB: not the pages of files. */
  get heldMb(): number {
    const bytes = /^(?:anon|rss) (\d+)$/m.exec(this.#read('memory.stat'))?.[1];
    return Math.round(Number(bytes) / 2 ** 20);
  }

  /** Takes the group away; its processes have ended. */
  async remove(): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        return rmdirSync(this.#group);
      } catch (error) {
        // What a command left behind may be on its way out.
        if (tries === 100) throw error;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  }

  #read(file: string): string {
    return readFileSync(join(this.#group, file), 'utf8');
  }

  #write(file: string, text: string): void {
    writeFileSync(join(this.#group, file), text);
  }

  #writeWhereKnown(file: string, text: string): void {
    try {
      this.#write(file, text);
    } catch {
      // A kernel without swap has no such file.
    }
  }
}

function shipped(example: string, name: 'MemoryHigh' | 'MemoryMax'): string {
  const text = new RegExp(`^${name}=(\\d+M)$`, 'm').exec(readFileSync(join(EXAMPLES, example), 'utf8'))?.[1];
  if (text === undefined) throw new Error(`${example} has no ${name}`);
  return text;
}

/** The group of this process that the memory controller sees, wherever it is mounted. */
function memoryGroup(): { own: string; isV2: boolean } {
  const lines = readFileSync('/proc/self/cgroup', 'utf8').split('\n');
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
  const mountOf = (ending: RegExp) => mounts.find((line) => ending.test(line))?.split(' ')[4];
  const v1 = mountOf(/ - cgroup \S+ \S*\bmemory\b/);
  const v2 = mountOf(/ - cgroup2 /);
  const path = (line: RegExp) => lines.map((one) => line.exec(one)?.[1]).find((found) => found !== undefined) ?? '/';
  if (v1 !== undefined) return { own: join(v1, path(/^\d+:(?:[^:]*,)?memory(?:,[^:]*)?:(.*)$/)), isV2: false };
  if (v2 !== undefined) return { own: join(v2, path(/^0::(.*)$/)), isV2: true };
  throw new Error(
    'no control groups are mounted on this machine: this test needs them to bound the memory of a daemon',
  );
}
