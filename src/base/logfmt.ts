/**
 * Formats log lines as logfmt (`level=error event=agent.start_failed msg="failed to start"`), which is easy to read in
 * the journal and to parse in programs. Nested values are quoted JSON.
 */

/** Strings that do not require quotes and cannot be mistaken for a number, a boolean or null. */
const BARE = /^(?!(?:true|false|null|-?\d[\d.]*(?:e[+-]?\d+)?)$)[\w.:/@+-]+$/i;
const MEMBER = /([^\s="]+)=("(?:[^"\\]|\\.)*"|\S*)/g;

/** Returns one line without a line feed. */
export function logfmtLine(members: Readonly<Record<string, unknown>>): string {
  return Object.entries(members)
    .map(([name, value]) => `${name.replaceAll(/[\s="]/g, '_')}=${valueText(value)}`)
    .join(' ');
}

function valueText(value: unknown): string {
  if (typeof value === 'object' && value !== null) return JSON.stringify(JSON.stringify(value));
  if (typeof value === 'string') return BARE.test(value) ? value : JSON.stringify(value);
  return String(value);
}

/** Parses a line written by `logfmtLine`. Returns `undefined` for other text. */
export function parseLogfmt(text: string): Record<string, unknown> | undefined {
  if (!/^(time=\S+ )?level=/.test(text)) return undefined;
  const members: Record<string, unknown> = {};
  for (const [, name = '', value = ''] of text.matchAll(MEMBER)) members[name] = parsedValue(value);
  return members;
}

function parsedValue(text: string): unknown {
  const value = fromJson(text);
  return typeof value === 'string' && /^[[{]/.test(value) ? fromJson(value) : value;
}

/** Returns text that is not JSON as an unquoted string. */
function fromJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
