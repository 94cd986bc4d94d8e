import { relative } from 'node:path';
import { type FileIdentity, unreadFileIdentity, yamlDigest, yamlFileIdentity } from './configuration-digest.ts';
import { type NamedFile, withDropIns } from './drop-in-files.ts';
import type { ComingFiles } from './env-files.ts';
import { mergeYaml, type Section } from './merged-yaml.ts';
import { escapePointer, type YamlFile } from './placed-yaml.ts';
import { fillPlaceholders, hasPlaceholder, type PlaceholderValues } from './placeholders.ts';
import type { Problems } from './problem.ts';
import { parseYaml, readYamlFile } from './yaml-file.ts';

/** Files of each configuration part: the main file and its drop-in folder. */
const PARTS = {
  tags: {
    file: 'tags.yaml',
    folder: 'tags.d',
    sections: {
      tags: { of: 'names', what: 'tag' },
      sources: { of: 'names', what: 'source' },
      like: { of: 'names', what: 'like' },
    },
  },
  reactions: { file: 'reactions.yaml', folder: 'reactions.d', sections: { reactions: { of: 'entries' } } },
} as const satisfies Record<string, { file: string; folder: string; sections: Record<string, Section> }>;

export type YamlPartName = keyof typeof PARTS;

/** Text of one file. */
export interface FileText {
  name: string;
  text: string;
}

export interface YamlPart {
  /** Merged content of all files; `undefined` if there are none or none can be parsed. */
  file: YamlFile | undefined;
  /** None of the files exists. */
  missing: boolean;
  /** A file exists but cannot be parsed, so an unknown name may be defined there. */
  unknown: boolean;
  texts: readonly FileText[];
  identities: readonly FileIdentity[];
  /** Digest of the part after placeholder replacement. */
  digest: string;
}

/**
 * Reads a part from its files or from the stored text in `kept`. `coming` replaces individual files. Reports problems
 * and never throws.
 */
export function readYamlPart(
  part: YamlPartName,
  directory: string,
  values: PlaceholderValues,
  problems: Problems,
  { kept, coming }: { kept?: readonly FileText[] | undefined; coming?: ComingFiles | undefined } = {},
): YamlPart {
  const { file, folder, sections } = PARTS[part];
  const files: YamlFile[] = [];
  const texts: FileText[] = [];
  const identities: FileIdentity[] = [];
  let unknown = false;
  const take = (read: { file: YamlFile; text: string }) => {
    texts.push({ name: read.file.name, text: read.text });
    files.push(hasPlaceholder(read.text) ? fillYaml(read.file, values, problems) : read.file);
  };
  const sources: readonly (NamedFile | FileText)[] =
    kept ??
    withDropIns(directory, file, folder, problems, coming?.keys()).map((one) => comingText(directory, one, coming));
  for (const source of sources) {
    const read = 'text' in source ? fromText(source, problems) : readYamlFile(source, problems);
    const name = 'path' in source ? relative(directory, source.path) : source.name;
    if (read === undefined) {
      unknown = true;
      identities.push(unreadFileIdentity(name));
    } else if (read !== 'missing') {
      take(read);
      identities.push(yamlFileIdentity(part, name, read.text, read.file.data));
    }
  }
  const merged = files.length === 0 ? undefined : mergeYaml(files, sections, problems);
  return {
    file: merged,
    missing: files.length === 0 && !unknown,
    unknown,
    texts,
    identities,
    digest: yamlDigest(part, merged?.data),
  };
}

function comingText(directory: string, file: NamedFile, coming: ComingFiles | undefined): NamedFile | FileText {
  const text = coming?.get(relative(directory, file.path));
  return text === undefined ? file : { name: file.name, text };
}

function fromText({ name, text }: FileText, problems: Problems): { file: YamlFile; text: string } | undefined {
  const file = parseYaml(text, name, problems);
  return file && { file, text };
}

/**
 * Replaces placeholders in each scalar and name of a file, so that inserted text cannot change the structure.
 * Placeholders that cannot be replaced are reported at their location.
 */
export function fillYaml(file: YamlFile, values: PlaceholderValues, problems: Problems): YamlFile {
  const filled = new Set<string>();
  const unfilled = new Set<string>();
  /** Original names by pointer after placeholder replacement. */
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
        problems.error(file.placeOfName(below), `duplicate name "${own}"`, 'keep only one');
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
    textOf: (pointer) => file.textOf(asWritten(pointer)),
  };
}
