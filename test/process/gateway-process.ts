import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type AgentFiles, AgentProcess } from './agent-process.ts';
import { MemoryBounds } from './memory-bounds.ts';
import { asPackaged } from './packaged.ts';

const ROOT = join(import.meta.dirname, '../..');

/**
 * The daemon as a gateway has it: built, started with the flags and variables of the package's command, and bounded in memory
 * as `systemd/examples/bounds.conf` bounds the unit. It and all that it starts must never be ended for memory: `dispose` throws where they
 * were, so that every test that runs it holds that.
 */
export class GatewayProcess extends AgentProcess {
  readonly bounds: MemoryBounds;

  constructor(platformUrl: string, files: AgentFiles = {}) {
    const bounds = new MemoryBounds();
    super(platformUrl, files);
    this.bounds = bounds;
  }

  protected override command(): readonly string[] {
    const { flags, main } = installed();
    return [...this.bounds.surroundings, ...this.surroundings, process.execPath, ...flags, ...this.flags, main];
  }

  protected override variables(): Record<string, string> {
    return installed().variables;
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

let built: Installed | undefined;

/** Built once for all tests of a file. */
function installed(): Installed {
  built ??= build();
  return built;
}

function build(): Installed {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-built-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  // What it reads beside itself, and its dependencies.
  for (const name of ['package.json', 'config', 'node_modules']) symlinkSync(join(ROOT, name), join(folder, name));
  execFileSync(process.execPath, [join(ROOT, 'scripts/build.ts'), join(folder, 'dist')]);
  return { main: join(folder, 'dist/main.js'), ...asPackaged() };
}
