import { mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { MAIN } from '../../built-agent.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { asPackaged } from '../../host/packaged.ts';

const CHECKOUT_MAIN = join(import.meta.dirname, '../../../src/main.ts');
/** Address without a listener. */
const PLATFORM = 'http://127.0.0.1:9';

class StartedAgent extends AgentProcess {
  words: readonly string[] = [];

  protected override command(): readonly string[] {
    return this.words;
  }
}

let agent: StartedAgent;

afterEach(async () => {
  await agent.dispose();
});

/** The running agent as seen by the kernel. */
function running(): { flags: string[]; variables: Record<string, string | undefined> } {
  const words = readFileSync(`/proc/${agent.pid}/cmdline`, 'utf8').split('\0');
  const environment = readFileSync(`/proc/${agent.pid}/environ`, 'utf8').split('\0');
  const variables = environment.filter((line) => line.startsWith('MALLOC_')).map((line) => line.split('='));
  return {
    flags: words.slice(1).filter((word) => word.startsWith('--') && word !== '--config'),
    variables: Object.fromEntries(variables),
  };
}

/** `npm install` links the command into a folder on PATH. */
function npmCommand(): string {
  const bin = join(agent.folder, 'bin');
  mkdirSync(bin);
  symlinkSync(MAIN, join(bin, 'tagferry'));
  return join(bin, 'tagferry');
}

describe('agent memory options', () => {
  it.each([
    ['from the checkout', () => [process.execPath, CHECKOUT_MAIN]],
    ['built', () => [process.execPath, MAIN]],
    ['as the command that npm installs', () => [npmCommand()]],
  ])('match those of the package if it is started %s', async (_, words) => {
    agent = new StartedAgent(PLATFORM);
    agent.words = words();
    const child = agent.launch({ PATH: `${dirname(process.execPath)}:${process.env.PATH}` });
    await agent.until(() => agent.hasBeenReady, 'the agent is ready');
    expect(running()).toEqual(asPackaged());
    expect(child.pid).toBe(agent.pid);
    expect(agent.output).not.toContain('Warning');
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('are overridden by user-defined options', async () => {
    agent = new StartedAgent(PLATFORM);
    agent.words = [process.execPath, '--max-semi-space-size=4', MAIN];
    await agent.start({ MALLOC_ARENA_MAX: '4' });
    const { flags, variables } = running();
    expect(flags.filter((flag) => flag.startsWith('--max-semi-space-size')).at(-1)).toBe('--max-semi-space-size=4');
    expect(variables.MALLOC_ARENA_MAX).toBe('4');
  });
});
