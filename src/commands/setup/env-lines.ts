import { envText, parseEnvFile } from '../../config/env-file.ts';
import { Problems } from '../../config/problem.ts';
import { AGENT_ENV_KEYS } from '../../config/setting-keys.ts';

/**
 * Sets keys in the text of agent.env and leaves every other line as it is: a line of the key is replaced, else its commented
 * default is followed by the new line, else the new line goes to the end. An empty value takes the line's value away. `notes` are comments
 * behind the values of their keys.
 */
export function setEnvLines(
  text: string,
  values: ReadonlyMap<string, string>,
  notes: ReadonlyMap<string, string> = new Map(),
): string {
  const lines = text.replace(/\n+$/, '').split('\n');
  for (const [key, value] of values) {
    const note = notes.get(key);
    const written = `${key}=${envText(value)}${note === undefined ? '' : ` # ${note}`}`;
    const set = lines.findIndex((line) => lineOf(line) === key);
    const commented = lines.findIndex((line) => lineOf(line.replace(/^\s*#+\s*/, '')) === key);
    if (set >= 0) lines[set] = written;
    else if (value === '' && note === undefined) continue;
    else if (commented >= 0) lines.splice(commented + 1, 0, written);
    else lines.push(written);
  }
  return `${lines.join('\n')}\n`;
}

/** The value of a key as the agent reads it, before placeholders are replaced; `''` if there is none. */
export function envValue(text: string, key: string): string {
  return parseEnvFile(text, 'agent.env', AGENT_ENV_KEYS, new Problems()).lines.get(key)?.value ?? '';
}

function lineOf(line: string): string | undefined {
  return /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=/.exec(line)?.[1];
}
