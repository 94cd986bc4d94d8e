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

/** Maximum file size, which is sufficient for about 20,000 tags. */
const MAX_YAML_BYTES = 4_000_000;
/**
 * Matches a password in an address or credentials in a header. Each part has a fixed prefix and a length limit, so that
 * long lines are scanned in linear time.
 */
const SECRET =
  /:\/\/[^/\s:@]{1,256}:[^/\s@]{1,256}@|\b(?:authorization|(?:x-)?api-?key)["']?[ \t]{0,99}:[ \t]{0,99}\S/i;
/** Limits for alias expansion: nine lines of nested aliases can produce a billion nodes. */
const LIMITS = { nodes: 400_000, depth: 40, nameLength: 1_024 };

/**
 * Reads a YAML file. Returns `'missing'` if it does not exist, or `undefined` after reporting that it cannot be
 * parsed.
 */
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

/** Returns the location of the first secret outside comments. */
function placeOfSecret(text: string, file: string): Place | undefined {
  // Skip the slow search for files without secrets.
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

/** Parses text and reports each syntax error with its line. Never throws. */
export function parseYaml(text: string, name: string, problems: Problems): YamlFile | undefined {
  const data = readPlainYaml(text, LIMITS);
  if (data === undefined) return parsePlacedYaml(text, name, LIMITS, problems);
  // Compute locations only for problems.
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
    textOf: (pointer) => places()?.textOf(pointer),
  };
}
