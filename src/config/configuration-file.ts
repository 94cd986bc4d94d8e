import type { Stats } from 'node:fs';
import { resolve } from 'node:path';
import { codeOf } from '../base/errors.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import type { Place, Problems } from './problem.ts';

/** A file of the configuration folder, or one that `KEY_FILE` or a credential names. */
export interface FoundFile {
  text: string;
  stats: Stats;
}

/** How a file can be unreadable; `missing` is not always a problem. */
export type FileReading =
  | FoundFile
  | { missing: true }
  | { reason: string; instead: string; line: number; accessDenied?: true };

const WORDS_FOR_CODE: Readonly<Record<string, { reason: string; instead: string }>> = {
  EISDIR: { reason: 'it is a folder', instead: 'put a file in its place' },
  ENOTREG: { reason: 'it is not a regular file', instead: 'put a file in its place' },
  ELOOP: { reason: 'its symbolic links go round in a circle', instead: 'put a file in its place' },
};

/** Reads at most `maxBytes` of UTF-8; never throws. A mark of byte order at the start is taken off. */
export function readConfigurationFile(path: string, maxBytes: number): FileReading {
  try {
    const { bytes, stats } = readRegularFileSync(path, maxBytes);
    return decode(bytes, stats);
  } catch (error) {
    const code = codeOf(error) ?? 'unknown';
    if (code === 'ENOENT' || code === 'ENOTDIR') return { missing: true };
    if (code === 'EACCES' || code === 'EPERM') {
      return {
        reason: 'cannot be read: this user may not read it',
        instead: readAdvice(path),
        line: 1,
        accessDenied: true,
      };
    }
    if (code === 'EFBIG') {
      const instead = 'shorten it, or check that it is the right file';
      return { reason: `is larger than ${maxBytes} bytes`, instead, line: 1 };
    }
    const words = WORDS_FOR_CODE[code];
    return {
      reason: `cannot be read: ${words?.reason ?? code}`,
      instead: words?.instead ?? 'check the file and its file system',
      line: 1,
    };
  }
}

/** Says why a file of the configuration could not be read. */
export function reportUnread(
  file: string,
  found: Exclude<FileReading, FoundFile | { missing: true }>,
  problems: Problems,
): void {
  const place = { file, line: found.line, column: 1 };
  if (found.accessDenied) problems.unreadable(place, `the file ${found.reason}`, found.instead);
  else problems.error(place, `the file ${found.reason}`, found.instead);
}

function decode(bytes: Buffer, stats: Stats): FileReading {
  // No text in UTF-8 holds a zero byte; in UTF-16, as editors of Windows save it, every second one is.
  if (bytes.includes(0)) {
    const isWide = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
    const what =
      isWide || bytes[0] === 0 || bytes[1] === 0 ? 'is saved as UTF-16' : 'holds zero bytes, which no text has';
    return { reason: what, instead: 'save the file as UTF-8', line: 1 };
  }
  try {
    return { text: new TextDecoder('utf-8', { fatal: true }).decode(bytes), stats };
  } catch {
    return { reason: 'holds bytes that are not UTF-8', instead: 'save the file as UTF-8', line: lineOfBadByte(bytes) };
  }
}

/** The first line that alone is no UTF-8: no sequence of UTF-8 contains a line feed. */
function lineOfBadByte(bytes: Buffer): number {
  let line = 1;
  let start = 0;
  while (start <= bytes.length) {
    const feed = bytes.indexOf(0x0a, start);
    const end = feed === -1 ? bytes.length : feed;
    try {
      new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(start, end));
    } catch {
      return line;
    }
    start = end + 1;
    line++;
  }
  return 1;
}

/** Warns of a file or folder that anyone may change: whoever writes reactions.yaml runs commands as this user. */
export function warnIfWritableByAll(problems: Problems, file: string, stats: Stats): void {
  if ((stats.mode & 0o002) === 0) return;
  const place = stats.isDirectory() ? { file, line: null, column: null } : { file, line: 1, column: 1 };
  problems.warning(place, 'anyone on this machine may change it', `run: chmod o-w ${file}`);
}

/**
 * Warns of secrets that others than the owner may read. A file of root's that one other group may read is how a package
 * hands secrets to a service's own user, so that is no fault.
 */
export function warnIfReadableByOthers(problems: Problems, at: Place, stats: Stats): void {
  const everyone = (stats.mode & 0o007) !== 0;
  const group = (stats.mode & 0o070) !== 0 && !(stats.uid === 0 && stats.gid !== 0 && (stats.mode & 0o020) === 0);
  if (!everyone && !group) return;
  const mode = (stats.mode & 0o777).toString(8).padStart(4, '0');
  problems.warning(at, `it holds secrets that others may read (mode ${mode})`, keepAdvice(at.file));
}

/** The service's own folder: its files are root's to write and the service's to read. Its credentials are root's alone. */
const OF_THE_SERVICE = /^\/etc\/tagferry\/(?!credentials\/)/;

/** How whoever runs with a file may read it. */
export function readAdvice(path: string): string {
  if (!OF_THE_SERVICE.test(resolve(path))) return 'give the user of the service read access';
  return `run: chown root:tagferry ${path} && chmod 640 ${path}`;
}

/** How a file with secrets is kept from others, and not from whoever runs with it. */
function keepAdvice(path: string): string {
  return OF_THE_SERVICE.test(resolve(path)) ? readAdvice(path) : `run: chmod 600 ${path}`;
}
