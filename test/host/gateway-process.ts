import { MAIN } from '../built-agent.ts';
import { type AgentFiles, AgentProcess } from '../e2e/harness/agent-process.ts';
import { MemoryBounds } from './memory-bounds.ts';
import { asPackaged } from './packaged.ts';

const PACKAGED = asPackaged();

/**
 * The agent as deployed on a gateway: built, started with the flags and variables of the package command, and limited
 * by a memory example in `systemd/examples` (default: `bounds.conf`). `dispose` throws if the kernel killed the agent
 * or a child process for exceeding the memory limit.
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
    if (kills > 0)
      throw new Error(`the kernel killed the agent or a child process for exceeding the memory limit: ${kills} times`);
  }
}
