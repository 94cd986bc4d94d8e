import { relative } from 'node:path';
import { type FileIdentity, unreadFileIdentity, yamlDigest, yamlFileIdentity } from './configuration-digest.ts';
import { type NamedFile, withDropIns } from './drop-in-files.ts';
import type { ComingFiles } from './env-files.ts';
import { fillYaml } from './filled-yaml.ts';
import { mergeYaml, type Section } from './merged-yaml.ts';
import type { YamlFile } from './placed-yaml.ts';
import { hasPlaceholder, type PlaceholderValues } from './placeholders.ts';
import type { Problems } from './problem.ts';
import { parseYaml, readYamlFile } from './yaml-file.ts';

/** What a part of the configuration is read from: a file, and the files of its drop-in folder. */
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

/** The text of one file, as it was read. */
export interface FileText {
  name: string;
  text: string;
}

export interface YamlPart {
  /** All files as one; `undefined` where there is none, or none can be understood. */
  file: YamlFile | undefined;
  /** None of the files is there. */
  missing: boolean;
  /** A file is there and cannot be understood: names that seem unknown may be in it. */
  unknown: boolean;
  texts: readonly FileText[];
  identities: readonly FileIdentity[];
  /** Digest of the part with placeholders filled in. */
  digest: string;
}

/** Reads a part from its files, or from `kept` texts in their place; `coming` files replace single files. Never throws, reports problems. */
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
