import { MAIN } from '../built-agent.ts';
import { type AgentFiles, AgentProcess } from './agent-process.ts';
import { MemoryBounds } from './memory-bounds.ts';
import { asPackaged } from './packaged.ts';

const PACKAGED = asPackaged();

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
    const flags = [...PACKAGED.flags, ...this.flags];
    return [...this.bounds.surroundings, ...this.surroundings, process.execPath, ...flags, MAIN];
  }

  protected override variables(): Record<string, string> {
    return PACKAGED.variables;
  }

  override async dispose(): Promise<void> {
    await super.dispose();
    const { kills } = this.bounds;
    await this.bounds.remove();
    if (kills > 0) throw new Error(`the kernel ended the daemon, or what it had started, for memory: ${kills} times`);
  }
}
