import { execFile } from 'node:child_process';
import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { CHECKOUT, madeOnce, sourceKey } from '../system/made-once.ts';
import { type AgentFiles, AgentProcess } from './agent-process.ts';
import { MemoryBounds } from './memory-bounds.ts';
import { asPackaged } from './packaged.ts';

const run = promisify(execFile);
const INSTALLED = await build();

/**
 * The daemon as a gateway has it: built, started with the flags and variables of the package's command, and bounded in memory
 * as an example in `systemd/examples` bounds the unit, `bounds.conf` unless told. It and all that it starts must never be ended for memory: `dispose` throws where they
 * were, so that every test that runs it holds that.
 */
export class GatewayProcess extends AgentProcess {
  readonly bounds: MemoryBounds;

  constructor(platformUrl: string, files: AgentFiles = {}, bounds = new MemoryBounds()) {
    super(platformUrl, files);
    this.bounds = bounds;
  }

  protected override command(): readonly string[] {
    const { flags, main } = INSTALLED;
    return [...this.bounds.surroundings, ...this.surroundings, process.execPath, ...flags, ...this.flags, main];
  }

  protected override variables(): Record<string, string> {
    return INSTALLED.variables;
  }

  override async dispose(): Promise<void> {
    await super.dispose();
    const { kills } = this.bounds;
    await this.bounds.remove();
    if (kills > 0) throw new Error(`the kernel ended the daemon, or what it had started, for memory: ${kills} times`);
  }
}

interface Installed {
  main: string;
  flags: string[];
  variables: Record<string, string>;
}

/** Built once for all files of tests, and again where a source has changed. */
async function build(): Promise<Installed> {
  const folder = await madeOnce('built', await sourceKey(), async (making) => {
    // What it reads beside itself, its dependencies, and the source of the program that reads OPC UA, a package of its own.
    for (const name of ['package.json', 'config', 'node_modules', 'src'])
      symlinkSync(join(CHECKOUT, name), join(making, name));
    await run(process.execPath, [join(CHECKOUT, 'scripts/build.ts'), join(making, 'dist')]);
  });
  return { main: join(folder, 'dist/main.js'), ...asPackaged() };
}
