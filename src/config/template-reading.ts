import { insteadOf } from '../base/nearest.ts';
import type { EventType } from '../contract/events.ts';
import { outlineAt, pathsOf } from './event-outline.ts';
import { escapePointer, type YamlFile } from './placed-yaml.ts';
import { type Problems, printable } from './problem.ts';

const PLACE = /\{\{\s*([^{}]{1,200}?)\s*\}\}/g;
/** What stands beside `content` in a payload (platform 6.2); the first two are one name in two spellings. */
const BESIDE_CONTENT = ['event_type', 'occurred_at', 'occured_at'];
const DEEPEST = 16;

/**
 * Warns of templates in a `post` body or a message that no event of the rule's types has anything for: they would leave nothing, in
 * silence, in the moment that matters. What the platform may send beyond the spec is not known here, so it is no error.
 */
export function checkTemplates(
  written: unknown,
  types: readonly EventType[],
  at: string,
  file: YamlFile,
  problems: Problems,
  depth = 0,
): void {
  if (depth > DEEPEST || types.length === 0) return;
  if (typeof written === 'string') {
    for (const [, path] of written.matchAll(PLACE)) checkTemplate(path!, types, at, file, problems);
  } else if (typeof written === 'object' && written !== null) {
    for (const [name, member] of Object.entries(written)) {
      checkTemplates(member, types, `${at}/${escapePointer(name)}`, file, problems, depth + 1);
    }
  }
}

function checkTemplate(
  path: string,
  types: readonly EventType[],
  at: string,
  file: YamlFile,
  problems: Problems,
): void {
  if (BESIDE_CONTENT.includes(path) || path === 'content') return;
  const inner = path.startsWith('content.') ? path.slice('content.'.length) : undefined;
  if (inner !== undefined && types.some((type) => outlineAt(type, inner) !== undefined)) return;
  const known = [...BESIDE_CONTENT.slice(0, 2), ...pathsOf(types).map((one) => `content.${one}`)];
  const forgot = inner === undefined && types.some((type) => outlineAt(type, path) !== undefined);
  const instead = forgot ? `write {{content.${printable(path)}}}` : insteadOf(path, known);
  const whose = types.length === 1 ? `${types[0]} has` : 'these event types have';
  problems.warning(file.placeOf(at), `{{${printable(path)}}} leaves nothing: ${whose} no such member`, instead, '');
}
