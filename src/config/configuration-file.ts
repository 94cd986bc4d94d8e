import type { Stats } from 'node:fs';
import { resolve } from 'node:path';
import { codeOf } from '../base/errors.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import type { Place, Problems } from './problem.ts';

/** File in the configuration folder, file specified by `KEY_FILE`, or credential. */
export interface FoundFile {
  text: string;
  stats: Stats;
}

/** Result of reading a file. `missing` is not always a problem. */
export type FileReading =
  | FoundFile
  | { missing: true }
  | { reason: string; instead: string; line: number; accessDenied?: true };

const WORDS_FOR_CODE: Readonly<Record<string, { reason: string; instead: string }>> = {
  EISDIR: { reason: 'it is a folder', instead: 'replace it with a file' },
  ENOTREG: { reason: 'it is not a regular file', instead: 'replace it with a file' },
  ELOOP: { reason: 'its symbolic links form a loop', instead: 'replace it with a file' },
};

/** Reads at most `maxBytes` of UTF-8 and removes a byte order mark. Never throws. */
export function readConfigurationFile(path: string, maxBytes: number): FileReading {
  try {
    const { bytes, stats } = readRegularFileSync(path, maxBytes);
    return decode(bytes, stats);
  } catch (error) {
    const code = codeOf(error) ?? 'unknown';
    if (code === 'ENOENT' || code === 'ENOTDIR') return { missing: true };
    if (code === 'EACCES' || code === 'EPERM') {
      return {
        reason: 'cannot be read: permission denied for this user',
        instead: readAdvice(path),
        line: 1,
        accessDenied: true,
      };
    }
    if (code === 'EFBIG') {
      const instead = 'shorten it, or check that this is the correct file';
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

/** Reports why a configuration file could not be read. */
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
  // UTF-8 text does not contain NUL bytes. In UTF-16, which Windows editors write, every second byte is usually NUL.
  if (bytes.includes(0)) {
    const isWide = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
    const what = isWide || bytes[0] === 0 || bytes[1] === 0 ? 'is saved as UTF-16' : 'contains zero bytes';
    return { reason: what, instead: 'save the file as UTF-8', line: 1 };
  }
  try {
    return { text: new TextDecoder('utf-8', { fatal: true }).decode(bytes), stats };
  } catch {
    return {
      reason: 'contains bytes that are not UTF-8',
      instead: 'save the file as UTF-8',
      line: lineOfBadByte(bytes),
    };
  }
}

/** Returns the first line that is not valid UTF-8. UTF-8 sequences never contain a line feed. */
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

/**
 * Warns about a file or folder that any user can change. Write access to reactions.yaml allows running commands as
 * this user.
 */
export function warnIfWritableByAll(problems: Problems, file: string, stats: Stats): void {
  if ((stats.mode & 0o002) === 0) return;
  const place = stats.isDirectory() ? { file, line: null, column: null } : { file, line: 1, column: 1 };
  problems.warning(place, 'any user on this machine can change it', `run: chmod o-w ${file}`);
}

/**
 * Warns about secrets that users other than the owner can read. Files owned by root and readable by one group are
 * accepted, because packages pass secrets to the service user this way.
 */
export function warnIfReadableByOthers(problems: Problems, at: Place, stats: Stats): void {
  const everyone = (stats.mode & 0o007) !== 0;
  const group = (stats.mode & 0o070) !== 0 && !(stats.uid === 0 && stats.gid !== 0 && (stats.mode & 0o020) === 0);
  if (!everyone && !group) return;
  const mode = (stats.mode & 0o777).toString(8).padStart(4, '0');
  problems.warning(at, `it contains secrets that other users can read (mode ${mode})`, keepAdvice(at.file));
}

/**
 * The service's configuration folder. Root writes its files and the service reads them. Only root can read the
 * credentials.
 */
const OF_THE_SERVICE = /^\/etc\/tagferry\/(?!credentials\/)/;

/** Returns advice on making a file readable for the service user. */
export function readAdvice(path: string): string {
  if (!OF_THE_SERVICE.test(resolve(path))) return 'grant the service user read access';
  return `run: chown root:tagferry ${path} && chmod 640 ${path}`;
}

/** Returns advice on restricting a file with secrets to the service user. */
function keepAdvice(path: string): string {
  return OF_THE_SERVICE.test(resolve(path)) ? readAdvice(path) : `run: chmod 600 ${path}`;
}
