import {
  readConfigurationFile,
  reportUnread,
  warnIfReadableByOthers,
  warnIfWritableByAll,
} from './configuration-file.ts';
import type { NamedFile } from './drop-in-files.ts';
import { parsePlacedYaml, type YamlFile } from './placed-yaml.ts';
import { readPlainYaml } from './plain-yaml.ts';
import { type Place, Problems } from './problem.ts';

export interface ReadYaml {
  file: YamlFile;
  text: string;
}

/** Some 20,000 tags. */
const MAX_YAML_BYTES = 4_000_000;
/**
 * A password in an address, or what a header lets its bearer do. Every part has a bound and begins with a fixed text, so that a
 * line of a megabyte is looked through once.
 */
const SECRET =
  /:\/\/[^/\s:@]{1,256}:[^/\s@]{1,256}@|\b(?:authorization|(?:x-)?api-?key)["']?[ \t]{0,99}:[ \t]{0,99}\S/i;
/** Aliases may repeat what they name, and nine lines of them can mean a billion nodes. */
const LIMITS = { nodes: 400_000, depth: 40, nameLength: 1_024 };

/** Reads a YAML file. `'missing'`: there is none. `undefined`: it cannot be understood, and that has been reported. */
export function readYamlFile({ path, name }: NamedFile, problems: Problems): ReadYaml | 'missing' | undefined {
  const found = readConfigurationFile(path, MAX_YAML_BYTES);
  if ('missing' in found) return 'missing';
  if ('reason' in found) {
    reportUnread(name, found, problems);
    return undefined;
  }
  warnIfWritableByAll(problems, name, found.stats);
  const file = parseYaml(found.text, name, problems);
  const place = placeOfSecret(found.text, name);
  if (place) warnIfReadableByOthers(problems, place, found.stats);
  return file && { file, text: found.text };
}

/** The first in the file that does not stand in a comment. */
function placeOfSecret(text: string, file: string): Place | undefined {
  // Most files have none.
  if (!SECRET.test(text)) return undefined;
  for (const [index, line] of text.split('\n').entries()) {
    const found = SECRET.exec(line);
    const comment = line.indexOf('#');
    if (!found || (comment !== -1 && comment < found.index)) continue;
    const scheme = /[a-z][a-z0-9+.-]{0,19}$/i.exec(line.slice(Math.max(0, found.index - 20), found.index));
    const isAddress = found[0].startsWith(':');
    if (isAddress && !scheme) continue;
    return { file, line: index + 1, column: found.index - (isAddress ? scheme![0].length : 0) + 1 };
  }
  return undefined;
}

/** Parses text; every mistake of syntax is reported with its line, none is thrown. */
export function parseYaml(text: string, name: string, problems: Problems): YamlFile | undefined {
  const data = readPlainYaml(text, LIMITS);
  if (data === undefined) return parsePlacedYaml(text, name, LIMITS, problems);
  // Where something stands is asked only by those who have something to say about it.
  let placed: YamlFile | undefined;
  const places = () => {
    placed ??= parsePlacedYaml(text, name, LIMITS, new Problems());
    return placed;
  };
  const start: Place = { file: name, line: 1, column: 1 };
  return {
    name,
    data,
    placeOf: (pointer) => places()?.placeOf(pointer) ?? start,
    placeOfName: (pointer) => places()?.placeOfName(pointer) ?? start,
  };
}
