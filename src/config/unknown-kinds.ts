/** Reports sources whose kind does not exist, such as `s7: 10.0.0.1`, with the kinds that exist. */
import type { SchemaObject } from 'ajv';
import { nearestName } from '../base/nearest.ts';
import { escapePointer, isMapping, type YamlFile } from './placed-yaml.ts';
import { type Problems, shown } from './problem.ts';
import type { SourceKinds } from './source-kinds.ts';
import { examplesOf } from './source-reading.ts';

/**
 * Reports each source with an unknown kind. Returns pointers to their unknown members, for which no further problems
 * are reported.
 */
export function reportUnknownKinds(
  file: YamlFile,
  schema: SchemaObject,
  problems: Problems,
  kinds: SourceKinds,
): Set<string> {
  const known = Object.keys(schema.properties.sources.additionalProperties.properties);
  const explained = new Set<string>();
  const sources = isMapping(file.data) && isMapping(file.data.sources) ? file.data.sources : {};
  for (const [name, raw] of Object.entries(sources)) {
    const at = `/sources/${escapePointer(name)}`;
    const [kind, ...others] = unknownMembersOf(isMapping(raw) ? Object.keys(raw) : [], kinds, known);
    if (kind === undefined) continue;
    const pointer = `${at}/${escapePointer(kind)}`;
    const reason = `unknown source kind ${shown(kind)}`;
    problems.error(file.placeOfName(pointer), reason, `use one of ${examplesOf(kinds)}`, kind);
    for (const member of [kind, ...others]) explained.add(`${at}/${escapePointer(member)}`);
  }
  return explained;
}

/** Returns the unknown members of a source; empty if its kind is known, missing or misspelled. */
function unknownMembersOf(members: readonly string[], kinds: SourceKinds, known: readonly string[]): string[] {
  const names = kinds.map(({ kind }) => kind);
  const unknown = members.filter((member) => !known.includes(member));
  // Short names are not treated as typos, because most names with three letters are similar.
  const isTypo = (member: string) => member.length > 3 && nearestName(member, names)?.likely === true;
  return members.some((member) => names.includes(member)) || unknown.some(isTypo) ? [] : unknown;
}
