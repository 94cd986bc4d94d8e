import type { Configuration } from '../../config/configuration.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { type CheckLine, ok, warning } from './finding.ts';

/** What the agent alone needs beside its cache: `systemd/examples/bounds.conf` is for it. */
const FOR_COMMANDS_BYTES = 300 * 2 ** 20;
const MB = 2 ** 20;
const WITH_PROGRAM = new Set(SOURCE_KINDS.filter(({ runsProgram }) => runsProgram).map(({ kind }) => kind));

/** Programs of sources and commands of reactions share the memory of the service: bounds meant for the agent alone are too small for both. */
export function checkServiceMemory(
  unit: Readonly<Record<string, string>>,
  configuration: Configuration | undefined,
): CheckLine[] {
  // Without a bound systemd says `infinity`.
  const bounds = [unit.MemoryMax, unit.MemoryHigh].map(Number).filter((bytes) => bytes > 0 && Number.isFinite(bytes));
  if (bounds.length === 0) return [];
  const bound = Math.min(...bounds);
  const text = `the service may take ${Math.round(bound / MB)} MB`;
  const commands = configuration ? commandsOf(configuration) : [];
  if (bound >= FOR_COMMANDS_BYTES || commands.length === 0) return [ok('memory', text)];
  return [
    warning(
      'memory',
      `${text}, which other programs share: ${commands.slice(0, 3).join(', ')}${commands.length > 3 ? ' and others' : ''}`,
      'Take bounds-with-commands.conf of /usr/share/doc/tagferry/examples in place of bounds.conf, with what they need.',
    ),
  ];
}

function commandsOf({ tags, reactions }: Configuration): string[] {
  const sources = [...tags.sources.values()]
    .filter(({ kind }) => WITH_PROGRAM.has(kind))
    .map(({ name }) => `source ${name}`);
  const runs = reactions.filter(({ actions }) => actions.some(({ kind }) => kind === 'run'));
  return [...sources, ...runs.map(({ name }) => `reaction ${name}`)];
}
