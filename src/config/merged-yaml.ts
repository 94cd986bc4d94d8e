import { escapePointer, type YamlFile } from './placed-yaml.ts';
import { type Problems, placeName, printable, shown } from './problem.ts';

/** Type of a top-level section, whose entries are merged by name or appended. */
export type Section = { of: 'names'; what: string } | { of: 'entries' };

/**
 * Merges a YAML file with its drop-ins. A duplicate entry is reported with both locations. Other problems refer to the
 * original file.
 */
export function mergeYaml(
  files: readonly YamlFile[],
  sections: Readonly<Record<string, Section>>,
  problems: Problems,
): YamlFile {
  if (files.length === 1) return files[0]!;
  const data: Record<string, unknown> = Object.create(null);
  /** Original file and pointer, by pointer in the merged file. */
  const origins = new Map<string, { file: YamlFile; pointer: string }>();
  const filled = new Set<string>();
  const unfilled = new Set<string>();
  const own = (pointer: string, file: YamlFile, there: string) => {
    origins.set(pointer, { file, pointer: there });
    for (const [from, to] of [
      [file.filled, filled],
      [file.unfilled, unfilled],
    ] as const) {
      for (const one of from ?? []) {
        if (one === there || one.startsWith(`${there}/`)) to.add(pointer + one.slice(there.length));
      }
    }
  };
  for (const file of files) {
    if (file.data === undefined || file.data === null) continue;
    if (typeof file.data !== 'object' || Array.isArray(file.data)) {
      const instead = `add ${Object.keys(sections)[0]}: with its entries below it`;
      problems.error(file.placeOf(''), `expected a mapping, found ${shown(file.data)}`, instead);
      continue;
    }
    for (const [name, member] of Object.entries(file.data)) {
      const at = `/${escapePointer(name)}`;
      const section = sections[name];
      const isEntries = Array.isArray(member);
      const isNames = typeof member === 'object' && member !== null && !isEntries;
      if (section === undefined || member === null || !(section.of === 'entries' ? isEntries : isNames)) {
        // Keep an invalid section, so that the schema reports it, unless another file has a valid one.
        if (!(name in data) || (data[name] === null && member !== null)) {
          data[name] = member;
          own(at, file, at);
        } else if (member !== null) {
          const wanted = section?.of === 'entries' ? 'a list' : 'a mapping';
          problems.error(file.placeOf(at), `"${printable(name)}" is not ${wanted}, as in other files`, `use ${wanted}`);
        }
        continue;
      }
      if (data[name] === undefined || data[name] === null) {
        data[name] = section.of === 'entries' ? [] : Object.create(null);
        origins.set(at, { file, pointer: at });
      }
      if (Array.isArray(member) && Array.isArray(data[name])) {
        const entries = data[name] as unknown[];
        for (const [index, entry] of member.entries()) {
          own(`${at}/${entries.length}`, file, `${at}/${index}`);
          entries.push(entry);
        }
      } else if (isNames && typeof data[name] === 'object' && !Array.isArray(data[name])) {
        addNames(data[name] as Record<string, unknown>, member, at, file, section);
      }
    }
  }
  function addNames(into: Record<string, unknown>, from: object, at: string, file: YamlFile, section: Section): void {
    for (const [name, entry] of Object.entries(from)) {
      const pointer = `${at}/${escapePointer(name)}`;
      const earlier = origins.get(pointer);
      if (earlier === undefined) {
        into[name] = entry;
        own(pointer, file, pointer);
        continue;
      }
      const what = section.of === 'names' ? section.what : 'entry';
      const first = placeName(earlier.file.placeOfName(earlier.pointer));
      const reason = `${what} "${printable(name)}" is already defined in ${first}`;
      problems.error(file.placeOfName(pointer), reason, 'keep only one', name);
    }
  }
  const found = (pointer: string): { file: YamlFile; pointer: string } => {
    for (let part = pointer; part !== ''; part = part.slice(0, part.lastIndexOf('/'))) {
      const origin = origins.get(part);
      if (origin !== undefined) return { file: origin.file, pointer: origin.pointer + pointer.slice(part.length) };
    }
    return { file: files[0]!, pointer };
  };
  return {
    name: files[0]!.name,
    data: Object.keys(data).length === 0 ? undefined : data,
    filled,
    unfilled,
    placeOf: (pointer) => {
      const { file, pointer: there } = found(pointer);
      return file.placeOf(there);
    },
    placeOfName: (pointer) => {
      const { file, pointer: there } = found(pointer);
      return file.placeOfName(there);
    },
    textOf: (pointer) => {
      const { file, pointer: there } = found(pointer);
      return file.textOf(there);
    },
  };
}
