import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { codeOf } from '../base/errors.ts';
import type { Problems } from './problem.ts';

/** A file of the configuration: where it is, and as the user would name it. */
export interface NamedFile {
  path: string;
  name: string;
}

/** Configuration management writes one file a role or a line of machines; more than this is a mistake. */
const MAX_FILES = 1000;
/** What editors and dpkg leave beside a file: a copy of it that nobody means to be read. */
const LEFT_BEHIND = /^\.|~$|\.dpkg-[a-z]+$/;

/**
 * The files of a drop-in folder (`tags.d`), in the order of their names by bytes, so that it is the same in every locale. A folder
 * that is not there holds none. What lies in it under another ending is named: a file that nobody reads looks like one that is read.
 */
function dropInFiles(folder: NamedFile, ending: string, problems: Problems, coming: readonly string[]): NamedFile[] {
  let names = coming;
  try {
    names = [...new Set([...readdirSync(folder.path), ...coming])];
  } catch (error) {
    const code = codeOf(error);
    const place = { file: folder.name, line: null, column: null };
    if (code === 'ENOTDIR')
      problems.error(place, 'this is no folder', `put a folder with *${ending} files in its place`);
    else if (code !== 'ENOENT')
      problems.error(place, `the folder cannot be read (${code})`, 'give the user of the service read access');
  }
  const found: NamedFile[] = [];
  for (const name of names
    .filter((one) => !LEFT_BEHIND.test(one))
    .sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))) {
    const file = { path: join(folder.path, name), name: `${folder.name}/${name}` };
    if (name.endsWith(ending) && found.length < MAX_FILES) found.push(file);
    else {
      const why = name.endsWith(ending)
        ? `the folder holds more than ${MAX_FILES} files`
        : `its name does not end in ${ending}`;
      problems.warning(
        { file: file.name, line: null, column: null },
        `the file is not read: ${why}`,
        'rename or remove it',
      );
    }
  }
  return found;
}

/** The name of a file of the folder, with the folder as the user wrote it. */
export function directoryPath(directory: string, file: string): string {
  return `${directory.replace(/(?<=.)\/+$/, '')}/${file}`.replace(/^\/\//, '/');
}

/**
 * A file of the configuration folder, and with it those of its drop-in folder. `coming`: paths of files that are about to be
 * written, relative to the configuration folder.
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
