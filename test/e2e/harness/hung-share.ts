import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';

/** FUSE file system without a server process: the kernel blocks every call, as with an unresponsive network share. */
const PROGRAM = `
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for folder in sys.argv[1:]:
    fd = os.open('/dev/fuse', os.O_RDWR)
    options = f'fd={fd},rootmode=40000,user_id=0,group_id=0'
    if libc.mount(b'hung-share', folder.encode(), b'fuse', 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), 'mount')
print('mounted', flush=True)
sys.stdin.read()
for folder in sys.argv[1:]:
    libc.umount2(folder.encode(), 2)
`;

/** Mounts unresponsive shares over folders. Requires root. */
export class HungShare {
  readonly #program: ChildProcess;

  private constructor(program: ChildProcess) {
    this.#program = program;
  }

  /** `pid`: process whose mount namespace contains the shares; default: the caller. */
  static async mount(folders: readonly string[], pid?: number): Promise<HungShare> {
    const inside = pid === undefined ? [] : ['nsenter', '--mount', '--target', String(pid)];
    const [command, ...args] = [...inside, 'python3', '-c', PROGRAM, ...folders] as [string, ...string[]];
    const program = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    const [first] = (await Promise.race([once(program.stdout!, 'data'), once(program, 'exit')])) as [unknown];
    if (!String(first).startsWith('mounted')) throw new Error(`mount ended with ${String(first)}`);
    return new HungShare(program);
  }

  /** Restores the folders; blocked calls fail. */
  async unmount(): Promise<void> {
    if (this.#program.exitCode !== null) return;
    this.#program.stdin!.end();
    await once(this.#program, 'exit');
  }
}
