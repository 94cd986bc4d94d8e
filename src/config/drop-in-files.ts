import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { codeOf } from '../base/errors.ts';
import type { Problems } from './problem.ts';

/** Path of a configuration file and its name in messages. */
export interface NamedFile {
  path: string;
  name: string;
}

/**
 * Configuration management writes one file per role or production line. A larger number of files is probably a mistake.
 */
const MAX_FILES = 1000;
/** Copies left behind by editors and dpkg, which must not be read. */
const LEFT_BEHIND = /^\.|~$|\.dpkg-[a-z]+$/;

/**
 * Returns the files of a drop-in folder (`tags.d`), sorted by bytes so that the order does not depend on the locale.
 * Returns no files if the folder is missing. Warns about files with a different extension, because they seem to be in
 * use.
 */
function dropInFiles(folder: NamedFile, ending: string, problems: Problems, coming: readonly string[]): NamedFile[] {
  let names = coming;
  try {
    names = [...new Set([...readdirSync(folder.path), ...coming])];
  } catch (error) {
    const code = codeOf(error);
    const place = { file: folder.name, line: null, column: null };
    if (code === 'ENOTDIR')
      problems.error(place, 'this is not a folder', `replace it with a folder of *${ending} files`);
    else if (code !== 'ENOENT')
      problems.error(place, `cannot read the folder (${code})`, 'grant the service user read access');
  }
  const found: NamedFile[] = [];
  for (const name of names
    .filter((one) => !LEFT_BEHIND.test(one))
    .sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))) {
    const file = { path: join(folder.path, name), name: `${folder.name}/${name}` };
    if (name.endsWith(ending) && found.length < MAX_FILES) found.push(file);
    else {
      const why = name.endsWith(ending)
        ? `the folder contains more than ${MAX_FILES} files`
        : `its name does not end in ${ending}`;
      problems.warning(
        { file: file.name, line: null, column: null },
        `the file is ignored: ${why}`,
        'rename or remove it',
      );
    }
  }
  return found;
}

/** Returns the path of a file, starting with the folder as specified by the user. */
export function directoryPath(directory: string, file: string): string {
  return `${directory.replace(/(?<=.)\/+$/, '')}/${file}`.replace(/^\/\//, '/');
}

/**
 * Returns a configuration file and the files of its drop-in folder. `coming` contains paths of files that are about
 * to be written, relative to the configuration folder.
 */
export function withDropIns(
  directory: string,
  file: string,
  folder: string,
  problems: Problems,
  coming: Iterable<string> = [],
): NamedFile[] {
  const named = (name: string) => ({ path: join(directory, name), name: directoryPath(directory, name) });
  const ending = file.slice(file.lastIndexOf('.'));
  const inFolder = [...coming].flatMap((path) =>
    path.startsWith(`${folder}/`) ? [path.slice(folder.length + 1)] : [],
  );
  return [named(file), ...dropInFiles(named(folder), ending, problems, inFolder)];
}
