/** Reads and writes archives of regular files in ustar format (POSIX.1-1988) without external programs. */
import { codeOf, TagferryError } from './errors.ts';

export interface TarEntry {
  /** Path with slashes. */
  name: string;
  text: string;
}

export interface TarHeader {
  name: string;
  size: number;
  mode: number;
  /** Seconds since 1970. */
  atSeconds: number;
  /** User and group names, because numeric IDs differ between machines. */
  user?: string;
  group?: string;
}

export const TAR_BLOCK = 512;
/**
 * Maximum size in octal digits. For larger files, the first bit of the field is set and the rest is binary, as in GNU
 * tar.
 */
const MAX_OCTAL_SIZE = 8 ** 11;

/** Returns the complete archive. `atSeconds` is the modification time of all entries, in seconds since 1970. */
export function writeTar(entries: readonly TarEntry[], atSeconds: number): Buffer {
  const blocks: Buffer[] = [];
  for (const { name, text } of entries) {
    const body = Buffer.from(text, 'utf8');
    blocks.push(tarHeader({ name, size: body.length, mode: 0o600, atSeconds }), body, tarPadding(body.length));
  }
  return Buffer.concat([...blocks, tarEnd()]);
}

/** Returns the padding after a file of this size. */
export function tarPadding(bytes: number): Buffer {
  return Buffer.alloc((TAR_BLOCK - (bytes % TAR_BLOCK)) % TAR_BLOCK);
}

export function tarEnd(): Buffer {
  return Buffer.alloc(2 * TAR_BLOCK);
}

/** Throws `RangeError` if the name is too long for the format. */
export function tarHeader({ name, size, mode, atSeconds, user = '', group = '' }: TarHeader): Buffer {
  const block = Buffer.alloc(TAR_BLOCK);
  const octal = (value: number, at: number, width: number) => {
    const digits = Math.max(0, Math.floor(value)).toString(8);
    block.write(`${digits.padStart(width - 1, '0')}\0`, at, 'latin1');
  };
  const [prefix, last] = splitName(name);
  block.write(last, 0, 'utf8');
  octal(mode & 0o7777, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  if (size < MAX_OCTAL_SIZE) octal(size, 124, 12);
  else {
    block[124] = 0x80;
    block.writeBigUInt64BE(BigInt(size), 128);
  }
  octal(atSeconds, 136, 12);
  block.write('        ', 148, 'latin1');
  block.write('0', 156, 'latin1');
  block.write('ustar\x0000', 257, 'latin1');
  block.write(user.slice(0, 31), 265, 'utf8');
  block.write(group.slice(0, 31), 297, 'utf8');
  block.write(prefix, 345, 'utf8');
  block.write(`${sumOf(block).toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return block;
}

/** Splits a name longer than 99 bytes at a slash. */
function splitName(name: string): [prefix: string, last: string] {
  if (Buffer.byteLength(name) <= 99) return ['', name];
  for (let at = name.indexOf('/'); at > 0; at = name.indexOf('/', at + 1)) {
    const [prefix, last] = [name.slice(0, at), name.slice(at + 1)];
    if (Buffer.byteLength(last) <= 99 && Buffer.byteLength(prefix) <= 154) return [prefix, last];
  }
  throw new RangeError(`file name ${name} is too long for the archive`);
}

/**
 * Parses a header written by `tarHeader`. Returns `undefined` for the final block of zeros. Throws `archive.garbled`
 * for other headers, such as links, folders and extensions.
 */
export function readTarHeader(block: Buffer): TarHeader | undefined {
  if (block.length === TAR_BLOCK && block.every((byte) => byte === 0)) return undefined;
  if (block.length < TAR_BLOCK || block.toString('latin1', 257, 262) !== 'ustar') throw garbled();
  const sum = octalIn(block, 148, 8);
  block.write('        ', 148, 'latin1');
  if (sumOf(block) !== sum || block.toString('latin1', 156, 157) !== '0') throw garbled();
  const prefix = textIn(block, 345, 155);
  const size = block[124] === 0x80 ? Number(block.readBigUInt64BE(128)) : octalIn(block, 124, 12);
  if (!Number.isSafeInteger(size)) throw garbled();
  return {
    name: `${prefix === '' ? '' : `${prefix}/`}${textIn(block, 0, 100)}`,
    size,
    mode: octalIn(block, 100, 8),
    atSeconds: octalIn(block, 136, 12),
    user: textIn(block, 265, 32),
    group: textIn(block, 297, 32),
  };
}

/** Computes the checksum with spaces in the checksum field. */
function sumOf(block: Buffer): number {
  return block.reduce((total, byte) => total + byte, 0);
}

function textIn(block: Buffer, at: number, width: number): string {
  const field = block.subarray(at, at + width);
  const end = field.indexOf(0);
  return field.toString('utf8', 0, end < 0 ? width : end);
}

function octalIn(block: Buffer, at: number, width: number): number {
  const digits = /^[0-7]+/.exec(textIn(block, at, width))?.[0];
  if (digits === undefined) throw garbled();
  return Number.parseInt(digits, 8);
}

export function garbled(cause?: unknown): TagferryError {
  const why = codeOf(cause);
  return new TagferryError(`not a tagferry archive, or damaged${why ? ` (${why})` : ''}`, {
    code: 'archive.garbled',
    cause,
  });
}
