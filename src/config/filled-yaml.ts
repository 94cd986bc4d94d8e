import { escapePointer, type YamlFile } from './placed-yaml.ts';
import { fillPlaceholders, type PlaceholderValues } from './placeholders.ts';
import type { Problems } from './problem.ts';

/**
 * The file with its placeholders filled in, scalar by scalar, names included: what is filled in can change neither the shape of the
 * file nor what stands beside it. Each one that cannot be is reported where it stands.
 */
export function fillYaml(file: YamlFile, values: PlaceholderValues, problems: Problems): YamlFile {
  const filled = new Set<string>();
  const unfilled = new Set<string>();
  /** Names that were written otherwise, by the pointer with what was filled in. */
  const written = new Map<string, string>();
  const take = (data: unknown, at: string, writtenAt: string): unknown => {
    if (typeof data === 'string') {
      const text = fillPlaceholders(data, values);
      if ('reason' in text) {
        problems.error(file.placeOf(writtenAt), text.reason, text.instead);
        unfilled.add(at);
        return data;
      }
      if (text.text !== data) filled.add(at);
      return text.text;
    }
    if (Array.isArray(data)) return data.map((item, index) => take(item, `${at}/${index}`, `${writtenAt}/${index}`));
    if (typeof data !== 'object' || data === null) return data;
    const members: Record<string, unknown> = Object.create(null);
    for (const [name, member] of Object.entries(data)) {
      const below = `${writtenAt}/${escapePointer(name)}`;
      const text = fillPlaceholders(name, values);
      if ('reason' in text) {
        problems.error(file.placeOfName(below), text.reason, text.instead);
        unfilled.add(`${at}/${escapePointer(name)}`);
      }
      const own = 'text' in text ? text.text : name;
      const pointer = `${at}/${escapePointer(own)}`;
      if (own in members) {
        problems.error(file.placeOfName(below), `"${own}" stands here a second time`, 'keep one of the two');
        continue;
      }
      if (pointer !== below) written.set(pointer, below);
      members[own] = take(member, pointer, below);
    }
    return members;
  };
  const data = take(file.data, '', '');
  const asWritten = (pointer: string): string => {
    for (let part = pointer; part !== ''; part = part.slice(0, part.lastIndexOf('/'))) {
      const found = written.get(part);
      if (found !== undefined) return found + pointer.slice(part.length);
    }
    return pointer;
  };
  return {
    name: file.name,
    data,
    filled,
    unfilled,
    placeOf: (pointer) => file.placeOf(asWritten(pointer)),
    placeOfName: (pointer) => file.placeOfName(asWritten(pointer)),
  };
}
