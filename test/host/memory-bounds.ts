import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const EXAMPLES = join(import.meta.dirname, '../../systemd/examples');

let groups = 0;

/**
 * Control group with the memory limits of an example in `systemd/examples`, created below the group of this process as
 * systemd does for the unit. Throws if no group can be created, because tests without limits would be meaningless.
 * Version 2 control groups have both limits. Version 1 has no throttling limit, so that only MemoryMax applies.
 */
export class MemoryBounds {
  readonly #group: string;
  readonly #isV2: boolean;

  /** `maxMb`: hard limit in MiB, instead of the example's limits. */
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
    // Swapped memory does not count towards the limit; a gateway has no swap.
    if (!isV2) this.#write('memory.swappiness', '0');
    else this.#writeWhereKnown('memory.swap.max', '0');
  }

  /** Command prefix that runs the command and its children in the group. */
  get surroundings(): string[] {
    return ['sh', '-c', 'echo 0 >"$0" && exec "$@"', join(this.#group, 'cgroup.procs')];
  }

  /** Number of processes in the group that the kernel killed for exceeding the memory limit. */
  get kills(): number {
    const text = this.#read(this.#isV2 ? 'memory.events' : 'memory.oom_control');
    return Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? Number.NaN);
  }

  /** Memory of the group that is released only when its processes exit, in MB; excludes the page cache. */
  get heldMb(): number {
    const bytes = /^(?:anon|rss) (\d+)$/m.exec(this.#read('memory.stat'))?.[1];
    return Math.round(Number(bytes) / 2 ** 20);
  }

  /** Deletes the group after its processes have ended. */
  async remove(): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        return rmdirSync(this.#group);
      } catch (error) {
        // Processes left by a command may still be exiting.
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
      // Kernels without swap have no such file.
    }
  }
}

function shipped(example: string, name: 'MemoryHigh' | 'MemoryMax'): string {
  const text = new RegExp(`^${name}=(\\d+M)$`, 'm').exec(readFileSync(join(EXAMPLES, example), 'utf8'))?.[1];
  if (text === undefined) throw new Error(`${example} has no ${name}`);
  return text;
}

/** Returns the group of this process in the memory controller, independent of the mount point. */
function memoryGroup(): { own: string; isV2: boolean } {
  const lines = readFileSync('/proc/self/cgroup', 'utf8').split('\n');
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
  const mountOf = (ending: RegExp) => mounts.find((line) => ending.test(line))?.split(' ')[4];
  const v1 = mountOf(/ - cgroup \S+ \S*\bmemory\b/);
  const v2 = mountOf(/ - cgroup2 /);
  const path = (line: RegExp) => lines.map((one) => line.exec(one)?.[1]).find((found) => found !== undefined) ?? '/';
  if (v1 !== undefined) return { own: join(v1, path(/^\d+:(?:[^:]*,)?memory(?:,[^:]*)?:(.*)$/)), isV2: false };
  if (v2 !== undefined) return { own: join(v2, path(/^0::(.*)$/)), isV2: true };
  throw new Error('no control groups are mounted on this machine: this test requires them to limit memory');
}
