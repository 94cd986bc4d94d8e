import { readConfigurationFile, warnIfReadableByOthers, warnIfWritableByAll } from './configuration-file.ts';
import { parsePlacedYaml, type YamlFile } from './placed-yaml.ts';
import { readPlainYaml } from './plain-yaml.ts';
import { type Place, Problems } from './problem.ts';

/** Some 20,000 tags. */
const MOST_YAML_BYTES = 4_000_000;
/** A password in an address, or what a header lets its bearer do; not in a comment. */
const SECRET =
  /^([^#\n]*?)(?:[a-z][a-z0-9+.-]*:\/\/[^/\s:@]+:[^/\s@]+@|\b(?:authorization|(?:x-)?api-?key)["']?\s*:\s*\S)/im;
/** Aliases may repeat what they name, and nine lines of them can mean a billion nodes. */
const LIMITS = { nodes: 400_000, depth: 40 };

/** Reads a YAML file. `'missing'`: there is none. `undefined`: it cannot be understood, and that has been reported. */
export function readYamlFile(path: string, name: string, problems: Problems): YamlFile | 'missing' | undefined {
  const found = readConfigurationFile(path, MOST_YAML_BYTES);
  if ('missing' in found) return 'missing';
  if ('reason' in found) {
    problems.error({ file: name, line: found.line, column: 1 }, `the file ${found.reason}`, found.instead);
    return undefined;
  }
  warnIfWritableByAll(problems, name, found.stats);
  const file = parseYaml(found.text, name, problems);
  const secret = SECRET.exec(found.text);
  if (secret !== null) {
    const before = found.text.slice(0, secret.index + secret[1]!.length).split('\n');
    const place = { file: name, line: before.length, column: before.at(-1)!.length + 1 };
    warnIfReadableByOthers(problems, place, found.stats);
  }
  return file;
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
