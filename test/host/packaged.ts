import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Flags and environment variables with which the package command starts the runtime. */
export function asPackaged(): { flags: string[]; variables: Record<string, string> } {
  const command = readFileSync(join(import.meta.dirname, '../../scripts/deb/wrapper'), 'utf8');
  const flags = /bin\/node ((?:--\S+ )+)\S*main\.js/.exec(command)?.[1]?.trim().split(' ');
  const variables = [...command.matchAll(/export (\w+)=(\S+)/g)].map(([, name, value]) => [name!, value!]);
  if (!flags || variables.length === 0) throw new Error('scripts/deb/wrapper reads otherwise than here');
  return { flags, variables: Object.fromEntries(variables) as Record<string, string> };
}
